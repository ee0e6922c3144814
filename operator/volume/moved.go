package volume

import (
	"fmt"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// A disk may be moved to another machine. Its pool is identified by its ID, so the agent of that machine finds its
// volumes, but the objects name the node that had the disk, and that field is immutable. Where that node is gone for
// good, which is when its agent is silent and its Node object was deleted, the finalizers of the objects are removed
// without touching any data. The agent of the node that has the disk now writes them again.

// byPool indexes Volumes and Snapshots by the ID of their pool.
const byPool = "pool"

func poolOf(o any) ([]string, error) {
	_, pool := placeOf(o)
	return []string{pool}, nil
}

func placeOf(o any) (node, pool string) {
	if v, is := o.(*v1beta1.Volume); is {
		return v.Spec.Node, v.Status.PoolID
	}
	s := o.(*v1beta1.Snapshot)
	return s.Spec.Node, s.Status.PoolID
}

// movedPools says by the IDs of pools which other node has each of them open, and has opened it after the last Lease
// renewal of a node. A pool that two nodes have is left out.
func movedPools(node string, all []*v1beta1.StorageNode, alive func(node string) bool) map[string]*v1beta1.StorageNode {
	seen := map[string]int64{} // how often each pool of the node had been opened when it was last heard of, by its ID
	for _, n := range all {
		if n.Name == node {
			for _, p := range n.Status.Pools {
				seen[p.ID] = p.Generation
			}
		}
	}
	at := map[string]*v1beta1.StorageNode{}
	for _, n := range all {
		if n.Name == node || v1beta1.IsSite(n.Name) || !alive(n.Name) {
			continue
		}
		for _, p := range n.Status.Pools {
			last, known := seen[p.ID]
			if !usable(p) || known && p.Generation <= last {
				continue
			}
			if _, twice := at[p.ID]; twice {
				at[p.ID] = nil
				continue
			}
			at[p.ID] = n
		}
	}
	return at
}

// movedEvents say where a volume is, and what keeps its claim from it.
func movedEvents(v *v1beta1.Volume, to *v1beta1.StorageNode) []event {
	message := fmt.Sprintf("volume %s is on node %s now, with its pool %s (ID %s), and node %s is gone: its object is written again for node %s. "+
		"Its PersistentVolume still names node %s; holdfast volumes adopt %s creates one for the claim where the data is",
		v.Name, to.Name, v.Status.Pool, v.Status.PoolID, v.Spec.Node, to.Name, v.Spec.Node, v.Name)
	isAgents := v.Labels[v1beta1.AdoptedLabel] != "" // and so is what it says of its claim
	return append(aboutVolume(v, !isAgents, v1beta1.ReasonPoolMoved, message), event{to, v1beta1.ReasonPoolMoved, message})
}
