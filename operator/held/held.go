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

// Stored counts the Volumes and Snapshots of the cluster.
type Stored struct {
	Volumes, Snapshots int
	// OnNodes has the volumes of each node and site, which are none where it has only snapshots.
	OnNodes map[string]int
	Partial bool // one of the kinds is missing or being deleted: there is more on the disks

	in map[place]counts // without what is lost
}

// place is a pool of a node; the pool is empty before one was chosen.
type place struct{ node, pool string }

type counts struct{ volumes, snapshots int32 }

// Count walks all Volumes and Snapshots.
func Count(volumes []*v1beta1.Volume, snapshots []*v1beta1.Snapshot) Stored {
	s := Stored{Volumes: len(volumes), Snapshots: len(snapshots), OnNodes: map[string]int{}, in: map[place]counts{}}
	for _, v := range volumes {
		s.add(place{v.Spec.Node, v.PoolName()}, v.Status.Phase, 1, 0)
	}
	for _, o := range snapshots {
		s.add(place{o.Spec.Node, o.Status.Pool}, o.Status.Phase, 0, 1)
	}
	return s
}

func (s *Stored) add(at place, phase v1beta1.Phase, volumes, snapshots int32) {
	s.OnNodes[at.node] += int(volumes)
	if phase != v1beta1.PhaseLost {
		s.in[at] = counts{s.in[at].volumes + volumes, s.in[at].snapshots + snapshots}
	}
}

// mayBeIn says whether something may be in a pool of that name on a node or in a Ceph cluster.
func (s Stored) mayBeIn(name string) bool {
	for at := range s.in {
		if inSpec, _ := v1beta1.InSpec(at.pool); (at.pool == "" || inSpec == name) && v1beta1.ServerOf(at.node) == "" {
			return true
		}
	}
	return false
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
	for at, n := range stored.in {
		if pool := t.at(at); pool != nil {
			pool.Volumes, pool.Snapshots = pool.Volumes+n.volumes, pool.Snapshots+n.snapshots
		}
	}
	return t.result()
}

type tally struct {
	has   map[string][]v1beta1.PoolSpec // by node
	pools map[string]*v1beta1.HeldPool
	nodes map[string]map[string]bool // by pool
}

// at returns the pool of the spec that a place is, the first one for an empty name, or nil if the node does not have it.
func (t *tally) at(in place) *v1beta1.HeldPool {
	p := v1beta1.Find(t.has[in.node], func(p v1beta1.PoolSpec) bool { return in.pool == "" || p.Name == in.pool })
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
	t.nodes[inSpec][in.node] = true
	return pool
}

func (t *tally) result() (all []v1beta1.HeldPool) {
	for _, name := range slices.Sorted(maps.Keys(t.pools)) {
		p := t.pools[name]
		p.Nodes = slices.Sorted(maps.Keys(t.nodes[name]))
		all = append(all, *p)
	}
	return all
}

func engine(p *v1beta1.PoolSpec) v1beta1.Engine { return cmp.Or(p.Engine, v1beta1.EngineImage) }
