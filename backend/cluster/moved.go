package cluster

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
		if n.Name == node || isServer(n.Name) || !alive(n.Name) {
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
	at := homes(node, l.allNodes(), func(other string) bool { return l.pulse.down(other) == "" })
	elsewhere := func(id string) bool { return at[id] != "" }
	if !slices.ContainsFunc(l.volumesOn(node), func(v *v1.Volume) bool { return elsewhere(v.Status.PoolID) }) &&
		!slices.ContainsFunc(l.snapshotsOn(node), func(s *v1.Snapshot) bool { return elsewhere(s.Status.PoolID) }) {
		return nil, nil
	}
	if _, err := l.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return nil, err
	}
	return at, nil
}

// handOverVolume lets an object go whose volume is on another node.
func (l *leader) handOverVolume(ctx context.Context, v *v1.Volume, home string) error {
	c := l.volumes.join(v.Name)
	defer c.leave()
	if !l.told[v.UID] {
		l.told[v.UID] = true
		l.tellMoved(v, home)
	}
	var request *v1.DeletionRequest
	if v.DeletionRequested() {
		request = v.Spec.Deletion
	}
	return handOver(ctx, l.Backend, l.volumes, c, v, home, request)
}

func (l *leader) handOverSnapshot(ctx context.Context, s *v1.Snapshot, home string) error {
	c := l.snapshots.join(s.Name)
	defer c.leave()
	var request *v1.DeletionRequest
	if s.DeletionRequested() {
		request = s.Spec.Deletion
	}
	return handOver(ctx, l.Backend, l.snapshots, c, s, home, request)
}

// handOver takes the finalizer off first: what is killed between finds an object without one, and goes on.
func handOver[T object](ctx context.Context, b *Backend, r *records[T], c *call[T], o T, home string, request *v1.DeletionRequest) error {
	if request != nil { // it holds for the data, wherever that is
		if err := b.discard(ctx, home, v1.Discard{Kind: r.kind, Name: o.GetName(), DeletionRequest: *request}); err != nil {
			return err
		}
	}
	if err := r.letGo(ctx, o); err != nil {
		return err
	}
	if o.GetDeletionTimestamp() == nil {
		uid := o.GetUID()
		err := r.client.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err := ignoreGone(err); err != nil {
			return err
		}
	}
	c.vanish(o.GetUID())
	b.log.Info("let go of an object whose pool is on another node now", "kind", r.kind, "id", o.GetName(), "node", home)
	return nil
}

// tellMoved says where a volume is, and what keeps its claim from it.
func (l *leader) tellMoved(v *v1.Volume, home string) {
	const text = "volume %s is on node %s now, with its pool %s (ID %s), and node %s is gone: its object is written again for node %s. " +
		"Its PersistentVolume still names node %s; holdfast volumes adopt %s makes one for the claim where the data is"
	about := []runtime.Object{v}
	if n := l.node(home); n != nil {
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

// sawPools lets nodes be looked at whose pools have turned up on another one.
func (b *Backend) sawPools(old, now *v1.StorageNode) {
	fresh := map[string]bool{}
	for _, p := range now.Status.Pools {
		known := old != nil && slices.ContainsFunc(old.Status.Pools, func(was v1.Pool) bool {
			return was.ID == p.ID && was.Generation == p.Generation && was.Message == ""
		})
		fresh[p.ID] = p.ID != "" && p.Message == "" && !known
	}
	if !slices.ContainsFunc(now.Status.Pools, func(p v1.Pool) bool { return fresh[p.ID] }) {
		return
	}
	for _, v := range b.allVolumes() {
		if v.Spec.Node != now.Name && fresh[v.Status.PoolID] {
			b.attend(v.Spec.Node)
		}
	}
	for _, s := range b.allSnapshots() {
		if s.Spec.Node != now.Name && fresh[s.Status.PoolID] {
			b.attend(s.Spec.Node)
		}
	}
}
