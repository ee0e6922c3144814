package main

import (
	"context"
	"log/slog"

	"github.com/holdfast-storage/holdfast/operator/nfsserver"
	"github.com/holdfast-storage/holdfast/operator/owned"
)

// nfsServers is the part of the operator that runs NFSServers, with what it watches alone: they are in any namespace.
type nfsServers struct {
	*nfsserver.Controller
	set     *owned.Set
	watched *nfsserver.Watched
}

func (o *operator) nfsServers(c *clients, shared factories, set *owned.Set, log *slog.Logger) (*nfsServers, error) {
	n := &nfsServers{watched: nfsserver.Watch(c.kubernetes)}
	var err error
	n.set, err = owned.New(owned.Config{
		Client: c.dynamic, Resources: c.holdfast.Discovery().ServerResourcesForGroupVersion, Kinds: nfsserver.Kinds(),
		Everywhere: true, Instance: nfsserver.Label, Log: log,
	})
	if err != nil {
		return nil, err
	}
	n.Controller, err = nfsserver.New(nfsserver.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Owned: set, Servers: n.set, Holdfast: shared.holdfast, Cluster: shared.cluster,
		Everywhere: n.watched, Namespace: o.namespace, Events: c.events, Log: log,
	})
	return n, err
}

func (n *nfsServers) start(ctx context.Context) error {
	n.watched.Start(ctx)
	return n.set.Start(ctx)
}
