package cluster

import (
	"errors"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// touch queues all clusters: there is one, and rarely another that is refused.
func (r *Controller) touch() { r.touchAfter(0) }

func (r *Controller) touchAfter(d time.Duration) {
	for _, c := range kube.Cached(r.clusters.List) {
		if d == 0 {
			r.loop.Enqueue(c.Name)
		} else {
			r.loop.EnqueueAfter(c.Name, d)
		}
	}
}

// listen registers the handlers that queue clusters. Changes of numbers alone are delayed, to be collected.
func (r *Controller) listen() error {
	kinds, kubernetes := r.Watches.Holdfast.Holdfast().V1beta1(), r.Watches.Cluster.Core().V1()
	r.Owned.Listen(func(apply.Ref) { r.touch() })
	now := func(any) []string { r.touch(); return nil }
	soon := func(any) []string { r.touchAfter(r.StatusDelay); return nil }
	recount := func(any) []string { r.counted.Store(false); r.touchAfter(r.StatusDelay); return nil }
	never := func(any, any) bool { return false }
	return errors.Join(
		r.loop.Watch(kinds.StorageClusters().Informer(), func(o any) []string { return []string{o.(*v1beta1.StorageCluster).Name} }),
		r.loop.WatchChanges(kinds.StorageClusters().Informer(), now, func(old, now any) bool { // another one may be served now
			return old.(*v1beta1.StorageCluster).DeletionTimestamp.IsZero() != now.(*v1beta1.StorageCluster).DeletionTimestamp.IsZero()
		}),
		r.loop.WatchChanges(kinds.Volumes().Informer(), recount, volumeMatters),
		r.loop.WatchChanges(kinds.Snapshots().Informer(), recount, snapshotMatters),
		r.loop.WatchChanges(kinds.NodeJobs().Informer(), soon, never),
		r.loop.WatchChanges(kinds.StorageUpgrades().Informer(), soon, never),
		r.loop.WatchChanges(kinds.StorageNodes().Informer(), now, storageNodeMatters),
		r.loop.WatchChanges(kubernetes.Nodes().Informer(), now, nodeMatters),
		r.loop.WatchChanges(kubernetes.Pods().Informer(), func(o any) []string {
			switch o.(*core.Pod).Labels[v1beta1.ComponentLabel] {
			case v1beta1.NodeComponent, v1beta1.LoopSetsComponent, v1beta1.ControllerComponent, v1beta1.CephComponent:
				r.touch()
			}
			return nil
		}, nil),
		r.loop.WatchChanges(r.Watches.Cluster.Storage().V1().StorageClasses().Informer(), soon, never),
		r.loop.WatchChanges(r.Watches.Cluster.Storage().V1().CSINodes().Informer(), now, func(old, now any) bool {
			return rollout.IsRegistered(old.(*storage.CSINode), r.Driver) != rollout.IsRegistered(now.(*storage.CSINode), r.Driver)
		}),
	)
}

// nodeMatters ignores the heartbeats of kubelets.
func nodeMatters(old, now any) bool {
	a, b := old.(*core.Node), now.(*core.Node)
	return !equality.Semantic.DeepEqual(a.Labels, b.Labels) || kube.IsReady(a) != kube.IsReady(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
}

// storageNodeMatters ignores how full the pools are, until one is full.
func storageNodeMatters(old, now any) bool {
	a, b := old.(*v1beta1.StorageNode), now.(*v1beta1.StorageNode)
	if a.Status.Version != b.Status.Version || len(a.Status.Pools) != len(b.Status.Pools) || hasInline(a) != hasInline(b) || mayHaveInline(a) != mayHaveInline(b) {
		return true
	}
	for condition := range v1beta1.ClientLabels {
		if hasClient(a, condition) != hasClient(b, condition) {
			return true
		}
	}
	was, is := meta.FindStatusCondition(a.Status.Conditions, v1beta1.ReadyCondition), meta.FindStatusCondition(b.Status.Conditions, v1beta1.ReadyCondition)
	if (was == nil) != (is == nil) || was != nil && (was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message) {
		return true
	}
	for i := range a.Status.Pools {
		p, q := &a.Status.Pools[i], &b.Status.Pools[i]
		if p.Name != q.Name || p.Message != q.Message || hasRoom(p) != hasRoom(q) {
			return true
		}
	}
	return false
}
