package volume

import (
	"context"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// A disk may be moved to another machine. Its pool is identified by its ID, so the agent of that machine finds its
// volumes, but the objects name the node that had the disk, and that field is immutable. Where that node is gone for
// good, which is when its agent is silent and its Node object was deleted, the finalizers of the objects are removed
// without touching any data. The agent of the node that has the disk now writes them again.

// homes says for the IDs of pools which other node has each of them open, and has opened it after the last Lease
// renewal of a node. A pool that two nodes have is left out.
func homes(node string, all []*v1beta1.StorageNode, alive func(node string) bool) map[string]string {
	seen := generations(node, all)
	at := map[string]string{}
	for _, n := range all {
		if n.Name == node || v1beta1.ServerOf(n.Name) != "" || !alive(n.Name) {
			continue
		}
		for _, p := range n.Status.Pools {
			last, known := seen[p.ID]
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
func generations(node string, all []*v1beta1.StorageNode) map[string]int64 {
	seen := map[string]int64{}
	for _, n := range all {
		for _, p := range n.Status.Pools {
			if n.Name == node && p.ID != "" {
				seen[p.ID] = p.Generation
			}
		}
	}
	return seen
}

// moved is homes of a node that is certainly gone. The cache may be behind, so the API server is asked.
func (l *leader) moved(ctx context.Context, node string) (map[string]string, error) {
	at := homes(node, all(l.storageNodes.List), func(other string) bool { return l.WhyDown(other) == "" })
	elsewhere := func(id string) bool { return at[id] != "" }
	if !slices.ContainsFunc(l.VolumesOn(node), func(v *v1beta1.Volume) bool { return elsewhere(v.Status.PoolID) }) &&
		!slices.ContainsFunc(l.SnapshotsOn(node), func(s *v1beta1.Snapshot) bool { return elsewhere(s.Status.PoolID) }) {
		return nil, nil
	}
	if _, err := l.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return nil, err
	}
	return at, nil
}

// handOverVolume lets an object go whose volume is on another node.
func (l *leader) handOverVolume(ctx context.Context, v *v1beta1.Volume, home string) error {
	if !l.reported[v.UID] {
		l.reported[v.UID] = true
		l.recordMoved(v, home)
	}
	return l.HandOverVolume(ctx, v, home)
}

// recordMoved says where a volume is, and what keeps its claim from it.
func (l *leader) recordMoved(v *v1beta1.Volume, home string) {
	const text = "volume %s is on node %s now, with its pool %s (ID %s), and node %s is gone: its object is written again for node %s. " +
		"Its PersistentVolume still names node %s; holdfast volumes adopt %s creates one for the claim where the data is"
	about := []runtime.Object{v}
	if n := l.storageNode(home); n != nil {
		about = append(about, n)
	}
	if claim := v.Spec.Labels[v1beta1.ClaimNameLabel]; claim != "" {
		about = append(about, &core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1beta1.ClaimNamespaceLabel],
		})
	}
	for _, o := range about {
		l.warnf(o, v1beta1.ReasonPoolMoved, text, v.Name, home, v.Status.Pool, v.Status.PoolID, v.Spec.Node, home, v.Spec.Node, v.Name)
	}
}
