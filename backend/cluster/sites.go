package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// A site has an agent and a StorageNode like a node, and all nodes reach its volumes: shared volumes are on NFS servers, and
// those of a class whose pool is in a Ceph cluster in that pool. It has no Node object: a silent site is down, and never gone.

// Home is where volumes may be: on a kind of sites, or on that of a name. The zero value means any node.
func (b *Backend) Home(shared bool, server, pool string) v1beta1.Site {
	if shared {
		return v1beta1.Site{Kind: v1beta1.SiteNFSServer, Name: server}
	}
	if ceph := b.cephPool(pool); ceph != "" {
		return v1beta1.Site{Kind: v1beta1.SiteCephPool, Name: ceph}
	}
	return v1beta1.Site{}
}

// cephPool returns the Ceph pool of a name, empty if the pool is on nodes. Where only Ceph pools are configured, the first is
// that of classes without a pool.
func (b *Backend) cephPool(name string) string {
	pools := b.configured()
	switch i := slices.IndexFunc(pools, func(p v1beta1.PoolSpec) bool { return p.Name == name }); {
	case i >= 0 && pools[i].Ceph == nil:
		return ""
	case i >= 0:
		return name
	case name == "" && len(pools) > 0 && len(v1beta1.NodePools(pools)) == 0:
		return pools[0].Name
	case name != "" && b.node(v1beta1.NodeOfCephPool(name)) != nil: // it was removed from the configuration with volumes in it
		return name
	}
	return ""
}

// configured are the pools that the StorageCluster names.
func (b *Backend) configured() []v1beta1.PoolSpec {
	if served := v1beta1.Served(kube.AllIn[*v1beta1.StorageCluster](b.watches.clusters.GetStore())); served != nil {
		return served.Spec.Pools
	}
	return nil
}

// Reach says which nodes can use the volumes of a pool.
func (b *Backend) Reach(pool string) backend.Reach {
	ceph := b.cephPool(pool)
	if ceph == "" {
		return backend.ItsHost
	}
	for _, p := range b.configured() {
		if p.Name == ceph {
			return convert.ReachOf(p.Engine)
		}
	}
	if n := b.node(v1beta1.NodeOfCephPool(ceph)); n != nil {
		if pools := poolsOf(n, ceph); len(pools) > 0 {
			return convert.ReachOf(pools[0].Engine)
		}
	}
	return backend.OneHost
}

// CanUse fails with ErrPrecondition if the agent of a node reports that it lacks what volumes need that require a label of
// its Node. It is asked before the label: the label follows the report, and says not why.
func (b *Backend) CanUse(node, key string) error {
	n := b.node(node)
	if n == nil {
		return nil
	}
	for condition, label := range v1beta1.ClientLabels {
		if c := meta.FindStatusCondition(n.Status.Conditions, condition); label == key && c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Errorf("%w: %s", backend.ErrPrecondition, c.Message)
		}
	}
	return nil
}

// Hosts returns the StorageNodes of a home by name, without servers that get no new volumes.
func (b *Backend) Hosts(home v1beta1.Site) []*v1beta1.StorageNode {
	return slices.SortedFunc(slices.Values(b.hosts(home)), byName)
}

// hosts is Hosts in no order: sorting thousands of nodes takes longer than choosing one.
func (b *Backend) hosts(home v1beta1.Site) []*v1beta1.StorageNode {
	return slices.DeleteFunc(b.allNodes(), func(n *v1beta1.StorageNode) bool {
		is := v1beta1.SiteOf(n.Name)
		return is.Kind != home.Kind || home.Name != "" && is.Name != home.Name || b.Disallowed(n.Name) != nil
	})
}

// Disallowed says why a server gets no new volumes: the administrator does not allow its namespace, and its author must
// not get the data of other tenants; or it is being deleted, and waits for the end of those that it has. It is nil for
// nodes.
func (b *Backend) Disallowed(node string) error {
	namespace, name, is := v1beta1.ParseNFSNode(node)
	if !is {
		return nil
	}
	server := kube.InStore[*v1beta1.NFSServer](b.watches.servers.GetStore(), namespace+"/"+name)
	if server != nil && server.DeletionTimestamp != nil {
		return fmt.Errorf("%w: %s gets no new volumes, since it is being deleted", backend.ErrUnavailable, v1beta1.SiteOf(node))
	}
	served := v1beta1.Served(kube.AllIn[*v1beta1.StorageCluster](b.watches.clusters.GetStore()))
	if served.AllowsNFSServers(namespace, b.Namespace) {
		return nil
	}
	return fmt.Errorf("%w: %s gets no new volumes, since namespace %s is not among those that may have NFS servers. To allow it: %s",
		backend.ErrUnavailable, v1beta1.SiteOf(node), namespace, served.AllowNFSServers(namespace))
}

// DisallowedServers returns the servers that get no new volumes, and the reason of the first.
func (b *Backend) DisallowedServers() (names []string, why error) {
	for _, n := range slices.SortedFunc(slices.Values(b.allNodes()), byName) {
		if err := b.Disallowed(n.Name); err != nil {
			names, why = append(names, v1beta1.ServerOf(n.Name)), cmp.Or(why, err)
		}
	}
	return names, why
}

// deletedWhen says when what is on a silent host will be deleted.
func deletedWhen(node string) string {
	switch v1beta1.SiteOf(node).Kind {
	case v1beta1.SiteNFSServer:
		return "when the server is back"
	case v1beta1.SiteCephPool:
		return "when the pool's agent is back"
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
	return b.sum(ctx, b.hosts(v1beta1.Site{Kind: v1beta1.SiteNFSServer}), pool)
}

// noServer explains why no server fits. It is Unavailable, since servers may appear later.
func (b *Backend) noServer(w *placement) error {
	servers := b.Hosts(v1beta1.Site{Kind: v1beta1.SiteNFSServer})
	disallowed, why := b.DisallowedServers()
	named := w.home.Name
	switch {
	case named != "" && slices.Contains(disallowed, named):
		return fmt.Errorf("shared volume %s: %w", w.id, b.Disallowed(v1beta1.NodeOfServer(named)))
	case len(servers) == 0 && why != nil:
		return fmt.Errorf("shared volume %s: no NFS server may get new volumes: %w", w.id, why)
	case len(servers) == 0:
		return fmt.Errorf("%w: shared volume %s: there is no NFS server; make an NFSServer, and look at its status if there is one", backend.ErrUnavailable, w.id)
	case named != "" && len(b.Hosts(w.home)) == 0:
		var all []string
		for _, n := range servers {
			all = append(all, v1beta1.ServerOf(n.Name))
		}
		return fmt.Errorf("%w: shared volume %s: NFS server %s is not there; the servers are: %s", backend.ErrUnavailable, w.id, backend.Quote(named), Few(all, ", "))
	}
	return nil
}

// otherHome says why a volume cannot be made from a source when only one of them is on an NFS server, or both are on two.
func (c *creation) otherHome(node string) error {
	is, want := v1beta1.SiteOf(node), c.home
	var why string
	switch {
	case want.Kind == v1beta1.SiteNFSServer && is.Kind == want.Kind:
		why = fmt.Sprintf("and nfsServer asks for %s; leave nfsServer out, or name that server", want.Name)
	case want.Kind == v1beta1.SiteNFSServer:
		why = "and a shared volume is made only from what is on an NFS server; use a class without shared"
	default:
		why = "from which only shared volumes are made; use a class with shared: \"true\""
	}
	return fmt.Errorf("%w volume %s: %s is on %s, %s", backend.ErrInvalid, c.id, c.source, is, why)
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
