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

// poolsOf returns the pools of a node, as last reported, that a request names: for an empty one the first, with those of
// its other devices.
func poolsOf(n *v1beta1.StorageNode, request string) (pools []*v1beta1.Pool) {
	if request == "" && len(n.Status.Pools) > 0 {
		request = n.Status.Pools[0].Name
	}
	for i := range n.Status.Pools {
		if p := &n.Status.Pools[i]; v1beta1.NamesPool(request, p.Name) {
			pools = append(pools, p)
		}
	}
	return pools
}

// room is what a pool can still promise, or why it can promise nothing.
type room struct {
	pool string
	backend.Capacity
	err error
}

// roomsAt returns the pools of a node that a request names.
func (b *Backend) roomsAt(node, request string) (rooms []room, err error) {
	if err := b.FindHost(node); err != nil {
		return nil, err
	}
	n, site := b.node(node), v1beta1.SiteOf(node)
	pools := poolsOf(n, request)
	why := b.liveness.down(node)
	switch {
	case len(pools) == 0 && site.Kind == v1beta1.SiteCephPool:
		return nil, fmt.Errorf("%w: the agent of %s has not reported yet", backend.ErrUnavailable, site)
	case len(pools) == 0:
		return nil, fmt.Errorf("%w: %s on %s; its pools are: %s", backend.ErrNotFound, PoolInWords(request), site, poolNames(n))
	case why != "":
		return nil, fmt.Errorf("%w: %s is down: %s", backend.ErrUnavailable, site, why)
	}
	for _, p := range pools {
		r := room{pool: p.Name}
		switch {
		case p.Message != "" && site.Kind == v1beta1.SiteCephPool:
			r.err = fmt.Errorf("%w: %s: %s", backend.ErrUnavailable, site, p.Message)
		case p.Message != "":
			r.err = fmt.Errorf("%w: pool %s of %s: %s", backend.ErrUnavailable, p.Name, site, p.Message)
		default:
			r.Capacity = b.capacity(node, p, p == &n.Status.Pools[0])
		}
		rooms = append(rooms, r)
	}
	return rooms, nil
}

// CapacityAt returns what the pools that a request names can still promise on one node: in sum, and as one volume.
func (b *Backend) CapacityAt(_ context.Context, node, request string) (sum backend.Capacity, err error) {
	rooms, err := b.roomsAt(node, request)
	if err != nil {
		return sum, err
	}
	usable := 0
	for _, r := range rooms {
		if r.err == nil {
			add(&sum, r.Capacity)
			usable++
		}
	}
	if usable == 0 {
		return sum, rooms[0].err
	}
	return sum, nil
}

// add adds the capacity of a pool in which no volume of another one can be.
func add(sum *backend.Capacity, c backend.Capacity) {
	sum.Total, sum.Promised, sum.Used, sum.Available = sum.Total+c.Total, sum.Promised+c.Promised, sum.Used+c.Used, sum.Available+c.Available
	sum.Smallest, sum.Largest = min(cmp.Or(sum.Smallest, c.Smallest), c.Smallest), max(sum.Largest, c.Largest)
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
	return b.sum(ctx, b.hosts(v1beta1.Site{}), pool)
}

func (b *Backend) sum(ctx context.Context, hosts []*v1beta1.StorageNode, pool string) (sum backend.Capacity, err error) {
	known := false
	for _, n := range hosts {
		c, err := b.CapacityAt(ctx, n.Name, pool)
		known = known || !errors.Is(err, backend.ErrNotFound)
		if err != nil {
			continue
		}
		add(&sum, c)
	}
	if !known {
		return sum, fmt.Errorf("%w: %s on any of the %d nodes", backend.ErrNotFound, PoolInWords(pool), len(hosts))
	}
	return sum, nil
}

// placement is a volume that needs a node.
type placement struct {
	id     backend.ID
	pool   string // as it was requested
	only   string // the pool of its source; empty: any of those requested
	bytes  int64
	nodes  []string // allowed nodes; none means any
	pinned bool     // it cannot be on another node
	home   v1beta1.Site
	tried  map[string]error // nodes, and NODE/POOL, that have refused
}

// place chooses the pool with the most free capacity and counts the volume there.
func (b *Backend) place(w *placement) (node, pool string, err error) {
	names := slices.DeleteFunc(slices.Clone(w.nodes), func(n string) bool { return v1beta1.SiteOf(n).Kind != w.home.Kind })
	if len(w.nodes) == 0 {
		for _, n := range b.hosts(w.home) {
			names = append(names, n.Name)
		}
	}
	b.placing.Lock()
	defer b.placing.Unlock()
	refusals := map[string]error{}
	most := int64(-1)
	for _, name := range names {
		rooms, err := b.roomsAt(name, cmp.Or(w.pool, w.only))
		if err = cmp.Or(w.tried[name], b.Disallowed(name), err); err != nil { // it may be disallowed and have the source
			refusals[name] = err
			continue
		}
		var why []error
		for _, r := range rooms {
			if err := w.refusal(name, r, b.reservations.mayHaveMore(name)); err != nil {
				why = append(why, err)
			} else if r.Available > most || r.Available == most && name < node {
				node, pool, most = name, r.pool, r.Available
			}
		}
		refusals[name] = together(why)
	}
	if node == "" {
		return "", "", b.noNode(w, refusals)
	}
	b.reservations.reserve(node, pool, w.id, w.bytes)
	return node, pool, nil
}

// errElsewhere is left out where there is more to say.
var errElsewhere = fmt.Errorf("%w: the source is in another pool", backend.ErrExhausted)

// refusal says why the volume cannot be in a pool.
func (w *placement) refusal(node string, in room, mayHaveMore bool) error {
	tried := w.tried[node+"/"+in.pool]
	switch {
	case w.only != "" && in.pool != w.only:
		return errElsewhere
	case tried != nil:
		return tried
	case in.err != nil:
		return in.err
	case in.Available < w.bytes && (in.Total < w.bytes || !mayHaveMore):
		return fmt.Errorf("%w: %s are free", backend.ErrExhausted, backend.Readable(in.Available))
	}
	return nil
}

// together makes one error of those of a node's pools. It is one of an outage only if all are: otherwise the scheduler may
// choose another node.
func together(all []error) (err error) {
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(err error) bool { return errors.Is(err, errElsewhere) })
	}
	outage := func(err error) bool { return errors.Is(err, backend.ErrUnavailable) }
	slices.SortStableFunc(all, func(x, y error) int {
		switch {
		case outage(x) == outage(y):
			return 0
		case outage(x):
			return 1
		}
		return -1
	})
	for i, one := range all {
		if i == 0 {
			err = one
		} else {
			err = fmt.Errorf("%w; %v", err, one)
		}
	}
	return err
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
	if w.pool != "" && !ceph && !slices.ContainsFunc(hosts, func(n *v1beta1.StorageNode) bool { return len(poolsOf(n, w.pool)) > 0 }) {
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
	return fmt.Errorf("%w: volume %s needs %s of %s: %s", kind, w.id, backend.Readable(w.bytes), PoolInWords(cmp.Or(w.pool, w.only)), Few(all, "; "))
}

// PoolInWords names a pool, or the first one, for people.
func PoolInWords(pool string) string {
	switch {
	case pool == "":
		return "the first pool"
	case strings.Contains(pool, ","):
		return "any of the pools " + backend.Quote(strings.ReplaceAll(pool, ",", ", "))
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
