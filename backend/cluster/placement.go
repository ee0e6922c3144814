package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// poolOf returns a pool of a node as last reported; the first one for an empty name.
func poolOf(n *v1beta1.StorageNode, name string) (pool *v1beta1.Pool, first bool) {
	for i := range n.Status.Pools {
		if p := &n.Status.Pools[i]; name == "" || p.Name == name {
			return p, i == 0
		}
	}
	return nil, false
}

// CapacityAt returns what a pool of one node can still promise.
func (b *Backend) CapacityAt(_ context.Context, node, pool string) (backend.Capacity, error) {
	if err := b.FindHost(node); err != nil {
		return backend.Capacity{}, err
	}
	n, site := b.node(node), v1beta1.SiteOf(node)
	p, first := poolOf(n, pool)
	why := b.liveness.down(node)
	switch {
	case p == nil && site.Kind == v1beta1.SiteCephPool:
		return backend.Capacity{}, fmt.Errorf("%w: the agent of %s has not reported yet", backend.ErrUnavailable, site)
	case p == nil:
		return backend.Capacity{}, fmt.Errorf("%w: %s on %s; its pools are: %s", backend.ErrNotFound, PoolInWords(pool), site, poolNames(n))
	case why != "":
		return backend.Capacity{}, fmt.Errorf("%w: %s is down: %s", backend.ErrUnavailable, site, why)
	case p.Message != "" && site.Kind == v1beta1.SiteCephPool:
		return backend.Capacity{}, fmt.Errorf("%w: %s: %s", backend.ErrUnavailable, site, p.Message)
	case p.Message != "":
		return backend.Capacity{}, fmt.Errorf("%w: pool %s of %s: %s", backend.ErrUnavailable, p.Name, site, p.Message)
	}
	return b.capacity(node, p, first), nil
}

// FindHost fails with ErrNotFound if a node or site has no agent.
func (b *Backend) FindHost(node string) error {
	switch site := v1beta1.SiteOf(node); {
	case b.node(node) != nil:
		return nil
	case site.Kind != "":
		return fmt.Errorf("%w: %s", backend.ErrNotFound, site)
	}
	return fmt.Errorf("%w: node %s has no agent", backend.ErrNotFound, backend.Quote(node))
}

func (b *Backend) capacity(node string, p *v1beta1.Pool, first bool) backend.Capacity {
	c, taken := convert.ToCapacity(p), b.reservations.reserved(node, p.Name, first)
	c.Available, c.Largest = max(0, c.Available-taken), max(0, c.Largest-taken)
	return c
}

// Capacity returns the sum of a pool over all nodes where it can be used, or that of a Ceph pool.
func (b *Backend) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	if ceph := b.cephPool(pool); ceph != "" {
		return b.CapacityAt(ctx, v1beta1.NodeOfCephPool(ceph), pool)
	}
	return b.sum(ctx, b.Hosts(v1beta1.Site{}), pool)
}

func (b *Backend) sum(ctx context.Context, hosts []*v1beta1.StorageNode, pool string) (sum backend.Capacity, err error) {
	known := false
	for _, n := range hosts {
		c, err := b.CapacityAt(ctx, n.Name, pool)
		known = known || !errors.Is(err, backend.ErrNotFound)
		if err != nil {
			continue
		}
		sum.Total, sum.Promised, sum.Used, sum.Available = sum.Total+c.Total, sum.Promised+c.Promised, sum.Used+c.Used, sum.Available+c.Available
		sum.Smallest, sum.Largest = min(cmp.Or(sum.Smallest, c.Smallest), c.Smallest), max(sum.Largest, c.Largest)
	}
	if !known {
		return sum, fmt.Errorf("%w: %s on any of the %d nodes", backend.ErrNotFound, PoolInWords(pool), len(hosts))
	}
	return sum, nil
}

// placement is a volume that needs a node.
type placement struct {
	id     backend.ID
	pool   string
	bytes  int64
	nodes  []string // allowed nodes; none means any
	pinned bool     // it cannot be on another node
	home   v1beta1.Site
	tried  map[string]error // nodes that have refused
}

// place chooses the node with the most free capacity and counts the volume there.
func (b *Backend) place(w *placement) (string, error) {
	b.placing.Lock()
	defer b.placing.Unlock()
	names := slices.DeleteFunc(slices.Clone(w.nodes), func(n string) bool { return v1beta1.SiteOf(n).Kind != w.home.Kind })
	if len(w.nodes) == 0 {
		for _, n := range b.Hosts(w.home) {
			names = append(names, n.Name)
		}
	}
	refusals := map[string]error{}
	best, most := "", int64(-1)
	for _, name := range names {
		c, err := b.CapacityAt(context.Background(), name, w.pool)
		switch {
		case w.tried[name] != nil:
			refusals[name] = w.tried[name]
		case b.Disallowed(name) != nil: // the source is there
			refusals[name] = b.Disallowed(name)
		case err != nil:
			refusals[name] = err
		case c.Available < w.bytes && (c.Total < w.bytes || !b.reservations.mayHaveMore(name)):
			refusals[name] = fmt.Errorf("%w: %s are free", backend.ErrExhausted, backend.Readable(c.Available))
		case c.Available > most || c.Available == most && name < best:
			best, most = name, c.Available
		}
	}
	if best == "" {
		return "", b.noNode(w, refusals)
	}
	b.reservations.reserve(best, w.pool, w.id, w.bytes)
	return best, nil
}

// noNode explains why no node fits. Of several nodes the scheduler may choose others; with only one, a retry has to wait
// until it is up.
func (b *Backend) noNode(w *placement, refusals map[string]error) error {
	if err := b.noServer(w); w.home.Kind == v1beta1.SiteNFSServer && err != nil {
		return err
	}
	hosts, ceph := b.Hosts(w.home), w.home.Kind == v1beta1.SiteCephPool
	switch {
	case len(hosts) == 0 && ceph:
		return fmt.Errorf("%w: volume %s: %s has no agent yet; check its pod, which is of Deployment holdfast-ceph-%s", backend.ErrUnavailable, w.id, w.home, w.home.Name)
	case len(hosts) == 0:
		return fmt.Errorf("%w: volume %s: no node has an agent yet; check the pods of the node DaemonSet", backend.ErrUnavailable, w.id)
	}
	if w.pool != "" && !ceph && !slices.ContainsFunc(hosts, func(n *v1beta1.StorageNode) bool { p, _ := poolOf(n, w.pool); return p != nil }) {
		var all []string
		for _, n := range hosts {
			all = append(all, n.Name+": "+poolNames(n))
		}
		kind := map[bool]string{true: "NFS server", false: "node"}[w.home.Kind == v1beta1.SiteNFSServer]
		return fmt.Errorf("%w: volume %s: no %s has a pool %s; the pools are: %s", backend.ErrInvalid, w.id, kind, backend.Quote(w.pool), Few(all, "; "))
	}
	kind := backend.ErrExhausted
	var all []string
	down := 0
	for _, name := range slices.Sorted(maps.Keys(refusals)) {
		host := name
		if site := v1beta1.SiteOf(name); site.Kind != "" {
			host = site.String()
		}
		all = append(all, host+": "+refusals[name].Error())
		if errors.Is(refusals[name], backend.ErrUnavailable) {
			down++
		}
	}
	if down == len(all) && (len(w.nodes) == 0 || w.pinned) {
		kind = backend.ErrUnavailable
	}
	return fmt.Errorf("%w: volume %s needs %s of %s: %s", kind, w.id, backend.Readable(w.bytes), PoolInWords(w.pool), Few(all, "; "))
}

// PoolInWords names a pool, or the first one, for people.
func PoolInWords(pool string) string {
	if pool == "" {
		return "the first pool"
	}
	return "pool " + backend.Quote(pool)
}

func poolNames(n *v1beta1.StorageNode) string {
	var names []string
	for _, p := range n.Status.Pools {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Few joins the first entries and counts the rest.
func Few(all []string, by string) string { return kube.Few(all, 10, by, " and %d more") }
