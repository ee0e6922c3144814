//go:build linux

package main

import (
	"log/slog"

	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/nfsserver"
)

// ownedByServers are the objects that are made for NFSServers.
func (o *operator) ownedByServers(c *clients, log *slog.Logger) (*apply.Set, error) {
	return apply.New(apply.Config{
		Client: c.dynamic, Resources: c.holdfast.Discovery().ServerResourcesForGroupVersion, Kinds: nfsserver.Kinds(),
		Name: "servers", Everywhere: true, Instance: nfsserver.Label, InventoryNamespace: o.namespace,
		Stranger: apply.TellOfStranger(c.kubernetes), Log: log,
	})
}
