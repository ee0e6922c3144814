package volume

import (
	"errors"
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// watch has a node looked at when its Node object comes, goes or is tainted, when something changes on it while its agent is
// silent, and when one of its pools turns up on another node.
func (l *leader) watch() error {
	kinds := l.Watches.Holdfast.Holdfast().V1beta1()
	return errors.Join(
		l.loop.WatchChanges(l.Watches.Cluster.Core().V1().Nodes().Informer(),
			func(o any) []string { return []string{o.(*core.Node).Name} },
			func(old, now any) bool { return outOfService(old.(*core.Node)) != outOfService(now.(*core.Node)) }),
		l.loop.Watch(kinds.Volumes().Informer(), func(o any) []string { return l.ifSilent(o.(*v1beta1.Volume).Spec.Node) }),
		l.loop.Watch(kinds.Snapshots().Informer(), func(o any) []string { return l.ifSilent(o.(*v1beta1.Snapshot).Spec.Node) }),
		l.loop.WatchChanges(kinds.StorageNodes().Informer(),
			func(o any) []string { return l.othersOf(o.(*v1beta1.StorageNode)) },
			func(old, now any) bool { return opened(old.(*v1beta1.StorageNode), now.(*v1beta1.StorageNode)) }),
	)
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

// othersOf are the other nodes by whose objects something is in a pool that a node has.
func (l *leader) othersOf(n *v1beta1.StorageNode) (nodes []string) {
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
