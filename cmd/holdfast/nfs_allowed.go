//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

// The operator says by this variable that the clients are those in the status of the NFSServer, which are the nodes. A
// flag would end a program of the release before, which an upgrade may leave in place.
const (
	clientsVariable = "HOLDFAST_NFS_CLIENTS"
	clientsOfStatus = "status"
)

// followsClients says whether the clients are those of the status.
func (n *nfs) followsClients() bool {
	return len(words(n.clients)) == 0 && os.Getenv(clientsVariable) == clientsOfStatus
}

// allowedClients has the clients that may mount exports that name none: those in the status of the NFSServer, or the
// last known ones while it cannot be read.
type allowedClients struct {
	server interface {
		SetClients(context.Context, []string) error
	}
	servers *provisioner.Servers
	file    string // where they are kept
	log     *slog.Logger

	known []string
}

// newAllowedClients reads the last known ones; its caller configures the server with them.
func (n *nfs) newAllowedClients(log *slog.Logger) (*allowedClients, error) {
	dir, err := n.directory("server")
	if err != nil {
		return nil, err
	}
	a := &allowedClients{file: filepath.Join(dir, "clients"), log: log}
	text, err := os.ReadFile(a.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--data: %w", err)
	}
	a.known = strings.Fields(string(text))
	return a, nil
}

// first are the clients at the start: only this host as long as none are known.
func (a *allowedClients) first() []string {
	if len(a.known) == 0 {
		return []string{loopback}
	}
	return a.known
}

// running is the server. Without an informer to follow it runs with the stored ones.
func (a *allowedClients) running(server *ganesha.Server, servers *provisioner.Servers) part {
	if a == nil {
		return server.Run
	}
	a.server, a.servers = server, servers
	return a.before(server.Run)
}

// before runs a server as soon as its clients are known: clients that are refused after a start lose their locks.
func (a *allowedClients) before(run part) part {
	return func(ctx context.Context) error {
		changed := make(chan struct{}, 1)
		changed <- struct{}{}
		if err := a.servers.OnChange(func() { kube.Notify(changed) }); err != nil {
			return err
		}
		for len(a.known) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				a.see(ctx)
			}
		}
		kube.Notify(changed)
		return runAll(ctx, []part{run, func(ctx context.Context) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-changed:
					a.see(ctx)
				}
			}
		}})
	}
}

// see follows the status. An empty one is ignored: the operator has not written it yet.
func (a *allowedClients) see(ctx context.Context) {
	own := a.servers.Own()
	if own == nil || len(own.Status.AllowedClients) == 0 || slices.Equal(own.Status.AllowedClients, a.known) {
		return
	}
	clients := slices.Clone(own.Status.AllowedClients)
	if err := a.server.SetClients(ctx, clients); err != nil {
		if ctx.Err() == nil {
			a.log.Error("the list of nodes that may mount could not be updated; it is retried at the next change", "error", err)
		}
		if errors.Is(err, ganesha.ErrClients) { // that list is none
			return
		}
	}
	a.known = clients
	if err := nodeops.ReplaceFile(a.file, []byte(strings.Join(clients, "\n")+"\n")); err != nil {
		a.log.Warn("the list of nodes that may mount could not be stored, and after a start it must come from the API server; free space where the data is", "error", err)
	}
	a.log.Info("the nodes that may mount have changed", "addresses", len(clients))
}
