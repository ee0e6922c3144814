package volume

import (
	"context"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// A disk may be moved to another machine. Its pool is known by its ID, so that node's agent finds what lies in it, but the
// objects name the node that had the disk, and nobody can change that. Where that node is gone for good, which is when
// its agent is silent and its Node object was deleted, the objects are let go without touching any data. The agent of
// the node that has the disk now writes them again.

// homes says by the IDs of pools which other node has each of them open, and has opened it after a node was heard of the
// last time. A pool that two nodes have is nobody's.
func homes(node string, all []*v1.StorageNode, alive func(node string) bool) map[string]string {
	told := generations(node, all)
	at := map[string]string{}
	for _, n := range all {
		if n.Name == node || v1.ServerOf(n.Name) != "" || !alive(n.Name) {
			continue
		}
		for _, p := range n.Status.Pools {
			last, known := told[p.ID]
			if p.ID == "" || p.Message != "" || known && p.Generation <= last {
				continue
			}
			if _, twice := at[p.ID]; twice {
				at[p.ID] = ""
				continue
			}
			at[p.ID] = n.Name
		}
	}
	return at
}

// generations says by its ID how often each pool of a node had been opened when the node was last heard of.
func generations(node string, all []*v1.StorageNode) map[string]int64 {
	told := map[string]int64{}
	for _, n := range all {
		for _, p := range n.Status.Pools {
			if n.Name == node && p.ID != "" {
				told[p.ID] = p.Generation
			}
		}
	}
	return told
}

// moved is homes of a node that is certainly gone. The cache may be behind, so the API server is asked.
func (l *leader) moved(ctx context.Context, node string) (map[string]string, error) {
	at := homes(node, all(l.storageNodes.List), func(other string) bool { return l.WhyDown(other) == "" })
	elsewhere := func(id string) bool { return at[id] != "" }
	if !slices.ContainsFunc(l.VolumesOn(node), func(v *v1.Volume) bool { return elsewhere(v.Status.PoolID) }) &&
		!slices.ContainsFunc(l.SnapshotsOn(node), func(s *v1.Snapshot) bool { return elsewhere(s.Status.PoolID) }) {
		return nil, nil
	}
	if _, err := l.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return nil, err
	}
	return at, nil
}

// handOverVolume lets an object go whose volume is on another node.
func (l *leader) handOverVolume(ctx context.Context, v *v1.Volume, home string) error {
	if !l.told[v.UID] {
		l.told[v.UID] = true
		l.tellMoved(v, home)
	}
	return l.HandOverVolume(ctx, v, home)
}

// tellMoved says where a volume is, and what keeps its claim from it.
func (l *leader) tellMoved(v *v1.Volume, home string) {
	const text = "volume %s is on node %s now, with its pool %s (ID %s), and node %s is gone: its object is written again for node %s. " +
		"Its PersistentVolume still names node %s; holdfast volumes adopt %s makes one for the claim where the data is"
	about := []runtime.Object{v}
	if n := l.storageNode(home); n != nil {
		about = append(about, n)
	}
	if claim := v.Spec.Labels[v1.ClaimNameLabel]; claim != "" {
		about = append(about, &core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1.ClaimNamespaceLabel],
		})
	}
	for _, o := range about {
		l.warnf(o, v1.ReasonPoolMoved, text, v.Name, home, v.Status.Pool, v.Status.PoolID, v.Spec.Node, home, v.Spec.Node, v.Name)
	}
}

// opened says whether a node has opened a pool that it did not have before, or anew.
func opened(old, now *v1.StorageNode) bool {
	return slices.ContainsFunc(now.Status.Pools, func(p v1.Pool) bool {
		return usable(p) && !slices.ContainsFunc(old.Status.Pools, func(was v1.Pool) bool {
			return was.ID == p.ID && was.Generation == p.Generation && was.Message == ""
		})
	})
}

func usable(p v1.Pool) bool { return p.ID != "" && p.Message == "" }

// othersOf are the other nodes by whose objects something is in a pool that a node has.
func (l *leader) othersOf(n *v1.StorageNode) (nodes []string) {
	has := map[string]bool{}
	for _, p := range n.Status.Pools {
		has[p.ID] = usable(p)
	}
	if len(has) == 0 {
		return nil
	}
	for _, v := range all(l.volumes.List) {
		if v.Spec.Node != n.Name && has[v.Status.PoolID] {
			nodes = append(nodes, v.Spec.Node)
		}
	}
	for _, s := range all(l.snapshots.List) {
		if s.Spec.Node != n.Name && has[s.Status.PoolID] {
			nodes = append(nodes, s.Spec.Node)
		}
	}
	return nodes
}
