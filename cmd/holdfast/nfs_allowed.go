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

	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
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

// allowedClients keeps who may mount what names no clients: as the status of the NFSServer has it, and as it was last
// known while that is out of reach.
type allowedClients struct {
	server interface {
		SetClients(context.Context, []string) error
	}
	servers *siblings
	file    string // where they are kept
	log     *slog.Logger

	known []string
}

// newAllowedClients reads those that were known last; server is told of them by whoever makes it.
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

// first are the clients to begin with: only this host as long as none are known.
func (a *allowedClients) first() []string {
	if len(a.known) == 0 {
		return []string{loopback}
	}
	return a.known
}

// running is the server. Who follows nobody runs it as it is.
func (a *allowedClients) running(server *ganesha.Server, servers *siblings) part {
	if a == nil {
		return server.Run
	}
	a.server, a.servers = server, servers
	return a.before(server.Run)
}

// before runs a server as soon as its clients are known: those that come back after a start, and find that they may not,
// lose what they hold.
func (a *allowedClients) before(run part) part {
	return func(ctx context.Context) error {
		changed := make(chan struct{}, 1)
		changed <- struct{}{}
		notice := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		_, err := a.servers.all.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notice() }, UpdateFunc: func(any, any) { notice() },
		})
		if err != nil {
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
		notice()
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

// see follows the status. An empty one says nothing: the operator has not written it yet.
func (a *allowedClients) see(ctx context.Context) {
	own := a.servers.own()
	if own == nil || len(own.Status.AllowedClients) == 0 || slices.Equal(own.Status.AllowedClients, a.known) {
		return
	}
	clients := slices.Clone(own.Status.AllowedClients)
	if err := a.server.SetClients(ctx, clients); err != nil {
		if ctx.Err() == nil {
			a.log.Error("the nodes that may mount are not those that there are; the next change is tried again", "error", err)
		}
		if errors.Is(err, ganesha.ErrClients) { // that list is none
			return
		}
	}
	a.known = clients
	if err := nodeops.ReplaceFile(a.file, []byte(strings.Join(clients, "\n")+"\n")); err != nil {
		a.log.Warn("the nodes that may mount are not kept, and after a start the API server must tell them; free space where the data is", "error", err)
	}
	a.log.Info("the nodes that may mount have changed", "addresses", len(clients))
}
