package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

// following are the parts of every server: its log follows spec.debug, and its status has its clients.
func (n *nfs) following(server *ganesha.Server, c *clients, servers *siblings, log *slog.Logger) ([]part, error) {
	t := &clientTeller{server: server, client: c.holdfast, servers: servers, log: log}
	debug, err := n.followDebug(servers.watches, log)
	if err != nil {
		return nil, err
	}
	follow, err := servers.follow(log)
	return []part{debug, follow, t.run}, err
}

// lookAtClients is how often clients are counted.
const lookAtClients = 10 * time.Second

// clientTeller writes into the status of a server how many clients it has.
type clientTeller struct {
	server interface {
		Clients(context.Context) ([]string, error)
	}
	client  client.Interface
	servers *siblings
	log     *slog.Logger
}

func (t *clientTeller) run(ctx context.Context) error {
	tick := time.NewTicker(lookAtClients)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := t.tell(ctx); err != nil {
			t.log.Debug("the number of clients is not told", "error", err) // the next look tells it
		}
	}
}

// tell writes the number where another stands.
func (t *clientTeller) tell(ctx context.Context) error {
	all, err := t.server.Clients(ctx)
	own := t.servers.own()
	if err != nil || own == nil || own.Status.Clients == int32(len(all)) {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"clients":%d}}`, len(all))
	_, err = t.client.HoldfastV1().NFSServers(own.Namespace).Patch(ctx, own.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "holdfast-nfs"}, "status")
	return err
}
