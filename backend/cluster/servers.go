package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// An NFS server has an agent and a StorageNode like a node, but only shared volumes. It has no Node object: a silent server
// is down, and never gone.

func isServer(node string) bool { return v1beta1.ServerOf(node) != "" }

// Hosts returns the nodes or, for a shared volume, the allowed servers; with a server's name, only that one.
func (b *Backend) Hosts(shared bool, server string) []*v1beta1.StorageNode {
	return slices.DeleteFunc(b.allNodes(), func(n *v1beta1.StorageNode) bool {
		return isServer(n.Name) != shared || server != "" && v1beta1.ServerOf(n.Name) != server || b.Disallowed(n.Name) != nil
	})
}

// Disallowed says why a server gets no new volumes: the administrator does not allow its namespace, and its author must
// not get the data of other tenants. It is nil for nodes.
func (b *Backend) Disallowed(node string) error {
	namespace, _, is := v1beta1.ParseNFSNode(node)
	if !is {
		return nil
	}
	served := v1beta1.Served(listed[*v1beta1.StorageCluster](b.watches.clusters.GetIndexer()))
	if served.AllowsNFSServers(namespace, b.Namespace) {
		return nil
	}
	return fmt.Errorf("%w: %s gets no new volumes, since namespace %s is not among those that may have NFS servers. To allow it: %s",
		backend.ErrUnavailable, hostWord(node), namespace, served.AllowNFSServers(namespace))
}

// DisallowedServers returns the servers that get no new volumes, and the reason of the first.
func (b *Backend) DisallowedServers() (names []string, why error) {
	for _, n := range b.allNodes() {
		if err := b.Disallowed(n.Name); err != nil {
			names, why = append(names, v1beta1.ServerOf(n.Name)), cmp.Or(why, err)
		}
	}
	return names, why
}

// hostWord names a node or a server in messages.
func hostWord(node string) string {
	if server := v1beta1.ServerOf(node); server != "" {
		return "NFS server " + server
	}
	return "node " + node
}

// deletedWhen says when what is on a silent host will be deleted.
func deletedWhen(node string) string {
	if isServer(node) {
		return "when the server is back"
	}
	return "when the node is back or its Node object is deleted"
}

// SharedCapacity returns the sum of a pool over all servers where it can be used, or that of one server.
func (b *Backend) SharedCapacity(ctx context.Context, server, pool string) (backend.Capacity, error) {
	if server != "" {
		if err := b.Disallowed(v1beta1.NodeOfServer(server)); err != nil {
			return backend.Capacity{}, err
		}
		return b.CapacityAt(ctx, v1beta1.NodeOfServer(server), pool)
	}
	return b.sum(ctx, b.Hosts(true, ""), pool)
}

// noServer explains why no server fits. It is Unavailable, since servers may appear later.
func (b *Backend) noServer(w *placement) error {
	servers := b.Hosts(true, "")
	disallowed, why := b.DisallowedServers()
	switch {
	case w.server != "" && slices.Contains(disallowed, w.server):
		return fmt.Errorf("shared volume %s: %w", w.id, b.Disallowed(v1beta1.NodeOfServer(w.server)))
	case len(servers) == 0 && why != nil:
		return fmt.Errorf("shared volume %s: there is no NFS server in a namespace that may have one: %w", w.id, why)
	case len(servers) == 0:
		return fmt.Errorf("%w: shared volume %s: there is no NFS server; make an NFSServer, and look at its status if there is one", backend.ErrUnavailable, w.id)
	case w.server != "" && len(b.Hosts(true, w.server)) == 0:
		var all []string
		for _, n := range servers {
			all = append(all, v1beta1.ServerOf(n.Name))
		}
		return fmt.Errorf("%w: shared volume %s: NFS server %s is not there; the servers are: %s", backend.ErrUnavailable, w.id, backend.Quote(w.server), Few(all, ", "))
	}
	return nil
}

// sameKind refuses a shared volume from a source on a node, and any other volume from a source on a server.
func (c *creation) sameKind(node string) error {
	server := v1beta1.ServerOf(node)
	switch {
	case server == "" && c.spec.Shared:
		return fmt.Errorf("%w volume %s: %s is on %s, and a shared volume is made only from what is on an NFS server; use a class without shared",
			backend.ErrInvalid, c.id, c.source, hostWord(node))
	case server != "" && !c.spec.Shared:
		return fmt.Errorf("%w volume %s: %s is on %s, from which only shared volumes are made; use a class with shared: \"true\"",
			backend.ErrInvalid, c.id, c.source, hostWord(node))
	case c.server != "" && c.server != server:
		return fmt.Errorf("%w volume %s: %s is on %s, and nfsServer asks for %s; leave nfsServer out, or name that server",
			backend.ErrInvalid, c.id, c.source, hostWord(node), c.server)
	}
	return nil
}

// checkServer refuses invalid names of servers, since the name becomes part of an object's name.
func checkServer(spec backend.VolumeSpec) error {
	switch {
	case spec.Server == "":
		return nil
	case !spec.Shared:
		return fmt.Errorf("%w NFS server %s: only a shared volume has one", backend.ErrInvalid, backend.Quote(spec.Server))
	case strings.Count(spec.Server, "/") != 1 || v1beta1.ServerOf(v1beta1.NodeOfServer(spec.Server)) != spec.Server:
		return fmt.Errorf("%w NFS server %s: it must be NAMESPACE/NAME of an NFSServer", backend.ErrInvalid, backend.Quote(spec.Server))
	}
	return nil
}
