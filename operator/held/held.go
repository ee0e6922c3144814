// Package held finds what a change of the StorageCluster must not touch: pools that hold volumes, their paths and their
// nodes. A change that would hide volumes is not applied; the running values stay.
package held

import (
	"cmp"
	"maps"
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Stored is all Volumes and Snapshots of the cluster.
type Stored struct {
	Volumes   []*v1beta1.Volume
	Snapshots []*v1beta1.Snapshot
	Partial   bool // one of the kinds is missing or being deleted: there is more on the disks
}

// mayBeIn says whether something may be in a pool of that name on a node or in a Ceph cluster.
func (s Stored) mayBeIn(name string) bool {
	may := func(node, pool string, phase v1beta1.Phase) bool {
		inSpec, _ := v1beta1.InSpec(pool)
		return (pool == "" || inSpec == name) && phase != v1beta1.PhaseLost && v1beta1.ServerOf(node) == ""
	}
	return slices.ContainsFunc(s.Volumes, func(v *v1beta1.Volume) bool { return may(v.Spec.Node, v.PoolName(), v.Status.Phase) }) ||
		slices.ContainsFunc(s.Snapshots, func(o *v1beta1.Snapshot) bool { return may(o.Spec.Node, o.Status.Pool, o.Status.Phase) })
}

// Pools returns the pools of a StorageCluster that hold something on a node that has them. running is the spec that runs,
// nil if it is not known. While that or what is stored is not known, the pools of the status stay, except those that are
// certainly empty and those that may be hidden.
func Pools(c *v1beta1.StorageCluster, running *render.Carried, nodes []*core.Node, stored Stored) []v1beta1.HeldPool {
	known := count(running, nodes, stored)
	if running != nil && !stored.Partial {
		return known
	}
	all := slices.DeleteFunc(slices.Clone(c.Status.Pools), func(p v1beta1.HeldPool) bool {
		return mayHide(c, p.Name) || !stored.Partial && !stored.mayBeIn(p.Name)
	})
	for _, p := range known {
		if !slices.ContainsFunc(all, func(h v1beta1.HeldPool) bool { return h.Name == p.Name }) {
			all = append(all, p)
		}
	}
	return all
}

// count returns the pools of the spec that runs that hold something.
func count(running *render.Carried, nodes []*core.Node, stored Stored) []v1beta1.HeldPool {
	if running == nil {
		return nil
	}
	as := &v1beta1.StorageCluster{}
	as.Spec.Pools, as.Spec.NodeSelectorTerms = running.Pools, running.NodeSelectorTerms
	has := map[string][]v1beta1.PoolSpec{}
	for _, n := range nodes {
		has[n.Name], _ = render.NodePools(as, n) // invalid terms select no node
	}
	for _, p := range v1beta1.CephPools(running.Pools) {
		has[v1beta1.NodeOfCephPool(p.Name)] = []v1beta1.PoolSpec{p}
	}
	t := tally{has: has, pools: map[string]*v1beta1.HeldPool{}, nodes: map[string]map[string]bool{}}
	for _, v := range stored.Volumes {
		if pool := t.at(v.Spec.Node, v.PoolName()); pool != nil && v.Status.Phase != v1beta1.PhaseLost {
			pool.Volumes++
			t.nodes[pool.Name][v.Spec.Node] = true
		}
	}
	for _, s := range stored.Snapshots {
		if pool := t.at(s.Spec.Node, s.Status.Pool); pool != nil && s.Status.Phase != v1beta1.PhaseLost {
			pool.Snapshots++
			t.nodes[pool.Name][s.Spec.Node] = true
		}
	}
	return t.result()
}

type tally struct {
	has   map[string][]v1beta1.PoolSpec // by node
	pools map[string]*v1beta1.HeldPool
	nodes map[string]map[string]bool // by pool
}

// at returns the pool of the spec that a pool of a node is, the first one for an empty name, or nil if the node does not have it.
func (t *tally) at(node, name string) *v1beta1.HeldPool {
	p := v1beta1.Find(t.has[node], func(p v1beta1.PoolSpec) bool { return name == "" || p.Name == name })
	if p == nil {
		return nil
	}
	inSpec, number := v1beta1.InSpec(p.Name)
	pool := t.pools[inSpec]
	if pool == nil {
		first := *p
		first.Name = inSpec
		pool = &v1beta1.HeldPool{Name: inSpec, Path: render.Place(&first), Engine: engine(p), Devices: p.Devices.DeepCopy()}
		t.pools[inSpec], t.nodes[inSpec] = pool, map[string]bool{}
	}
	if number > 1 {
		pool.Devices.Count = max(pool.Devices.Count, int32(number))
	}
	return pool
}

func (t *tally) result() (all []v1beta1.HeldPool) {
	for _, name := range slices.Sorted(maps.Keys(t.pools)) {
		if p := t.pools[name]; p.Volumes+p.Snapshots > 0 {
			p.Nodes = slices.Sorted(maps.Keys(t.nodes[name]))
			all = append(all, *p)
		}
	}
	return all
}

func engine(p *v1beta1.PoolSpec) v1beta1.Engine { return cmp.Or(p.Engine, v1beta1.EngineImage) }
