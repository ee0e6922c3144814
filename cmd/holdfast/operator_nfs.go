package main

import (
	"context"
	"log/slog"

	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/definitions"
	"github.com/holdfast-storage/holdfast/operator/nfsserver"
)

// nfsServers is the part of the operator that runs NFSServers, with what it watches alone: they are in any namespace.
type nfsServers struct {
	*nfsserver.Controller
	set     *apply.Set
	watched *nfsserver.Watched
}

func (o *operator) nfsServers(
	c *clients, shared factories, set, servers *apply.Set, kinds *definitions.Controller, log *slog.Logger,
) (*nfsServers, error) {
	n := &nfsServers{watched: nfsserver.Watch(c.kubernetes), set: servers}
	var err error
	n.Controller, err = nfsserver.New(nfsserver.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Owned: set, Servers: n.set, Holdfast: shared.holdfast, Cluster: shared.cluster,
		Everywhere: n.watched, Namespace: o.namespace, Events: c.events, Log: log,
		Whole: kinds.Whole,
	})
	return n, err
}

// ownedByServers are the objects that are made for NFSServers.
func (o *operator) ownedByServers(c *clients, log *slog.Logger) (*apply.Set, error) {
	return apply.New(apply.Config{
		Client: c.dynamic, Resources: c.holdfast.Discovery().ServerResourcesForGroupVersion, Kinds: nfsserver.Kinds(),
		Name: "servers", Everywhere: true, Instance: nfsserver.Label, InventoryNamespace: o.namespace,
		Stranger: apply.TellOfStranger(c.kubernetes), Log: log,
	})
}

func (n *nfsServers) start(ctx context.Context) error {
	n.watched.Start(ctx)
	return n.set.Start(ctx)
}
