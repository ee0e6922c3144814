package fencing

import (
	"errors"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// watch queues a node when it is tainted, comes, goes or is ready again, when its StorageNode changes, which also shows
// the silence of its agent, and when a pool has confirmed something; and all nodes when spec.fencing changes.
func (r *Controller) watch() error {
	kinds := r.Watches.Holdfast.Holdfast().V1beta1()
	return errors.Join(
		r.loop.WatchChanges(r.Watches.Cluster.Core().V1().Nodes().Informer(),
			func(o any) []string { return []string{o.(*core.Node).Name} },
			func(old, now any) bool {
				was, is := old.(*core.Node), now.(*core.Node)
				return kube.IsOutOfService(was) != kube.IsOutOfService(is) || kube.IsReady(was) != kube.IsReady(is)
			}),
		r.loop.WatchChanges(kinds.StorageNodes().Informer(), func(o any) []string { return concerned(o.(*v1beta1.StorageNode)) }, isNews),
		r.loop.WatchChanges(kinds.StorageClusters().Informer(), func(any) []string { return r.everyNode() }, func(old, now any) bool {
			return !equality.Semantic.DeepEqual(old.(*v1beta1.StorageCluster).Spec.Fencing, now.(*v1beta1.StorageCluster).Spec.Fencing)
		}),
	)
}

// concerned are the node itself, and those of whose clients a pool says something.
func concerned(n *v1beta1.StorageNode) []string {
	if !v1beta1.IsSite(n.Name) {
		return []string{n.Name}
	}
	var names []string
	for _, r := range n.Spec.Blocklist {
		names = append(names, r.Node)
	}
	for _, e := range n.Status.Blocklist {
		names = append(names, e.Node)
	}
	return names
}

// isNews ignores the numbers of pools, which change all the time.
func isNews(old, now any) bool {
	was, is := old.(*v1beta1.StorageNode), now.(*v1beta1.StorageNode)
	return was.UID != is.UID || was.Generation != is.Generation ||
		!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions) ||
		!equality.Semantic.DeepEqual(was.Status.CephClients, is.Status.CephClients) ||
		!equality.Semantic.DeepEqual(was.Status.Blocklist, is.Status.Blocklist)
}

func (r *Controller) everyNode() []string {
	var names []string
	for _, n := range kube.Cached(r.storageNodes.List) {
		names = append(names, concerned(n)...)
	}
	return names
}
