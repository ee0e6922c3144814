package volume

import (
	"errors"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// watch queues a node when its Node object comes, goes or is tainted, when something changes on it while its agent is
// silent, and when one of its pools turns up on another node; and a volume when its fault changes.
func (l *leader) watch() error {
	kinds := l.Watches.Holdfast.Holdfast().V1beta1()
	return errors.Join(
		l.nodeLoop.WatchChanges(l.Watches.Cluster.Core().V1().Nodes().Informer(),
			func(o any) []string { return []string{o.(*core.Node).Name} },
			func(old, now any) bool {
				return kube.IsOutOfService(old.(*core.Node)) != kube.IsOutOfService(now.(*core.Node))
			}),
		l.nodeLoop.Watch(kinds.Volumes().Informer(), func(o any) []string { return l.ifSilent(o.(*v1beta1.Volume).Spec.Node) }),
		l.nodeLoop.Watch(kinds.Snapshots().Informer(), func(o any) []string { return l.ifSilent(o.(*v1beta1.Snapshot).Spec.Node) }),
		l.nodeLoop.WatchChanges(kinds.StorageNodes().Informer(),
			func(o any) []string { return l.othersOf(o.(*v1beta1.StorageNode)) },
			func(old, now any) bool { return opened(old.(*v1beta1.StorageNode), now.(*v1beta1.StorageNode)) }),
		l.healthLoop.WatchChanges(kinds.Volumes().Informer(),
			func(o any) []string { return []string{o.(*v1beta1.Volume).Name} },
			func(old, now any) bool { return faultOf(old.(*v1beta1.Volume)) != faultOf(now.(*v1beta1.Volume)) }),
		l.unplacedLoop.WatchChanges(kinds.StorageNodes().Informer(), func(any) []string { return []string{everything} }, lacksOthers),
		l.watchClaims(),
	)
}

// watchClaims looks at the waiting claims when something changes that they depend on, and at a node when a claim changes
// whose volume there was given up: its end is the time to recreate it.
func (l *leader) watchClaims() error {
	if l.Driver == "" {
		return nil
	}
	claims, classes := l.Watches.Everywhere.Core().V1().PersistentVolumeClaims(), l.Watches.Cluster.Storage().V1().StorageClasses()
	l.claims, l.classes = claims.Lister(), classes.Lister()
	look := func(any) []string { return []string{everything} }
	return errors.Join(
		l.waitingLoop.Watch(claims.Informer(), func(o any) []string {
			l.wakeNodeOf(o.(*core.PersistentVolumeClaim))
			return look(o)
		}),
		l.waitingLoop.Watch(classes.Informer(), look),
		l.waitingLoop.Watch(l.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Informer(), look),
	)
}

func (l *leader) wakeNodeOf(claim *core.PersistentVolumeClaim) {
	volumes := l.Watches.Holdfast.Holdfast().V1beta1().Volumes().Informer().GetIndexer()
	given, _ := volumes.ByIndex(byRenewedClaim, cache.MetaObjectToName(claim).String()) // the index exists
	for _, v := range given {
		l.nodeLoop.Enqueue(v.(*v1beta1.Volume).Spec.Node)
	}
}

func (l *leader) ifSilent(node string) []string {
	if l.WhyDown(node) == "" {
		return nil
	}
	return []string{node}
}

// opened says whether a node has opened a pool that it did not have before, or has opened it again.
func opened(old, now *v1beta1.StorageNode) bool {
	return slices.ContainsFunc(now.Status.Pools, func(p v1beta1.Pool) bool {
		return usable(p) && !slices.ContainsFunc(old.Status.Pools, func(was v1beta1.Pool) bool {
			return was.ID == p.ID && was.Generation == p.Generation && was.Message == ""
		})
	})
}

func usable(p v1beta1.Pool) bool { return p.ID != "" && p.Message == "" }

// othersOf are the other nodes whose objects are in a pool that a node has.
func (l *leader) othersOf(n *v1beta1.StorageNode) (nodes []string) {
	kinds := l.Watches.Holdfast.Holdfast().V1beta1()
	for _, p := range slices.DeleteFunc(slices.Clone(n.Status.Pools), func(p v1beta1.Pool) bool { return !usable(p) }) {
		volumes, _ := kinds.Volumes().Informer().GetIndexer().ByIndex(byPool, p.ID) // the indexes exist
		snapshots, _ := kinds.Snapshots().Informer().GetIndexer().ByIndex(byPool, p.ID)
		for _, o := range append(volumes, snapshots...) {
			if node, _ := placeOf(o); node != n.Name {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}
