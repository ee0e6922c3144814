//go:build linux && !client

package main

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

// following are the parts of every server: its log follows spec.debug, and its status has its clients.
func (n *nfs) following(server *ganesha.Server, c *clients, servers *provisioner.Servers, log *slog.Logger) ([]part, error) {
	t := &clientReporter{server: server, client: c.holdfast, servers: servers, log: log}
	debug, err := n.follow(servers.Watches, log)
	if err != nil {
		return nil, err
	}
	return []part{debug, servers.Run, t.run}, nil
}

// countClientsEvery is how often clients are counted.
const countClientsEvery = 10 * time.Second

// clientTeller writes into the status of a server how many clients it has.
type clientReporter struct {
	server interface {
		Clients(context.Context) ([]string, error)
	}
	client  client.Interface
	servers *provisioner.Servers
	log     *slog.Logger
}

func (t *clientReporter) run(ctx context.Context) error {
	// It waits first: a server that has just started has no clients yet.
	_ = wait.PollUntilContextCancel(ctx, countClientsEvery, false, func(ctx context.Context) (bool, error) {
		if err := t.report(ctx); err != nil {
			t.log.Debug("the number of clients could not be reported", "error", err) // the next poll reports it
		}
		return false, nil
	})
	return nil
}

// report writes the number if it has changed.
func (t *clientReporter) report(ctx context.Context) error {
	all, err := t.server.Clients(ctx)
	own := t.servers.Own()
	if err != nil || own == nil || own.Status.Clients == int32(len(all)) {
		return err
	}
	change := map[string]any{"status": map[string]any{"clients": len(all)}}
	_, err = kube.MergePatch(ctx, t.client.HoldfastV1beta1().NFSServers(own.Namespace).Patch, own.Name, change, nfsManager, "status")
	return err
}
