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
}

// Pools returns the pools that hold something on a node that has them. running is the spec that runs, nil if none does.
func Pools(running *render.Carried, nodes []*core.Node, stored Stored) []v1beta1.HeldPool {
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

// at returns the pool of a node, the first one for an empty name, or nil if the node does not have it.
func (t *tally) at(node, name string) *v1beta1.HeldPool {
	i := slices.IndexFunc(t.has[node], func(p v1beta1.PoolSpec) bool { return name == "" || p.Name == name })
	if i < 0 {
		return nil
	}
	p := &t.has[node][i]
	if t.pools[p.Name] == nil {
		t.pools[p.Name] = &v1beta1.HeldPool{Name: p.Name, Path: render.Place(p), Engine: engine(p), Devices: p.Devices.DeepCopy()}
		t.nodes[p.Name] = map[string]bool{}
	}
	return t.pools[p.Name]
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
