package nfsserver

import (
	"errors"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// watchPods makes the watch of the servers' pods, which are in all namespaces.
func watchPods(client kubernetes.Interface) kubeinformers.SharedInformerFactory {
	return kubeinformers.NewSharedInformerFactoryWithOptions(client, 0, kubeinformers.WithTransform(kube.Slim), kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{nameLabel: holdfastName, componentLabel: serverComponent}.String()
	}))
}

// listen registers what makes servers be looked at. What only changes numbers waits a moment for more.
func (r *Controller) listen() error {
	kinds, cluster := r.Watches.Holdfast.Holdfast().V1(), r.Watches.Cluster.Core().V1()
	r.Servers.Listen(func(ref apply.Ref) {
		if key, is := serverOf(ref.NamespacedName); is {
			r.loop.Enqueue(key)
		}
		if ref.Name == rightsName {
			for _, key := range r.in(ref.Namespace) {
				r.loop.Enqueue(key)
			}
		}
	})
	r.Owned.Listen(func(ref apply.Ref) {
		if strings.HasPrefix(ref.Name, rightsName) { // the limits, too
			r.enqueueAll()
		}
	})
	all := func(any) []types.NamespacedName { r.enqueueAll(); return nil }
	return errors.Join(
		r.loop.Watch(kinds.NFSServers().Informer(), func(o any) []types.NamespacedName { return []types.NamespacedName{keyOf(o.(*v1.NFSServer))} }),
		r.loop.WatchChanges(kinds.StorageClusters().Informer(), all, func(old, now any) bool {
			return old.(*v1.StorageCluster).Generation != now.(*v1.StorageCluster).Generation
		}),
		r.loop.WatchChanges(kinds.Volumes().Informer(), r.soon(func(o any) string { return o.(*v1.Volume).Spec.Node }), func(old, now any) bool {
			return (old.(*v1.Volume).Status.Created == nil) != (now.(*v1.Volume).Status.Created == nil)
		}),
		r.loop.WatchChanges(kinds.Snapshots().Informer(), r.soon(func(o any) string { return o.(*v1.Snapshot).Spec.Node }), never),
		r.loop.WatchChanges(kinds.StorageNodes().Informer(), r.soon(func(o any) string { return o.(*v1.StorageNode).Name }), nil),
		r.loop.Watch(r.pods.Core().V1().Pods().Informer(), func(o any) []types.NamespacedName {
			p := o.(*core.Pod)
			return []types.NamespacedName{{Namespace: p.Namespace, Name: p.Labels[Label]}}
		}),
		r.loop.Watch(r.Watches.Everywhere.Core().V1().PersistentVolumeClaims().Informer(), r.usersOf),
		r.loop.WatchChanges(cluster.Namespaces().Informer(), func(o any) []types.NamespacedName { return r.in(o.(*core.Namespace).Name) }, func(old, now any) bool {
			return !equality.Semantic.DeepEqual(old.(*core.Namespace).Labels, now.(*core.Namespace).Labels)
		}),
		r.loop.WatchChanges(cluster.Nodes().Informer(), r.allSoon, seenOtherwise),
		r.loop.WatchChanges(kinds.StorageNodes().Informer(), r.allSoon, toldOtherwise),
	)
}

func never(any, any) bool { return false }

// soon lets the server be looked at that a thing belongs to by the name of its node.
func (r *Controller) soon(node func(any) string) func(any) []types.NamespacedName {
	return func(o any) []types.NamespacedName {
		if namespace, name, is := v1.ParseNFSNode(node(o)); is {
			r.loop.EnqueueAfter(types.NamespacedName{Namespace: namespace, Name: name}, r.Settle)
		}
		return nil
	}
}

// allSoon lets all servers be looked at, for a change of a node that each has to know.
func (r *Controller) allSoon(any) []types.NamespacedName {
	for _, s := range r.all() {
		r.loop.EnqueueAfter(keyOf(s), r.Settle)
	}
	return nil
}

func (r *Controller) enqueueAll() {
	for _, s := range r.all() {
		r.loop.Enqueue(keyOf(s))
	}
}

// all servers, as a cache has them.
func (r *Controller) all() []*v1.NFSServer {
	all, _ := r.servers.List(labels.Everything()) // a cache has no errors
	return all
}

// in are the servers of a namespace.
func (r *Controller) in(namespace string) (keys []types.NamespacedName) {
	all, _ := r.servers.NFSServers(namespace).List(labels.Everything())
	for _, s := range all {
		keys = append(keys, keyOf(s))
	}
	return keys
}

// usersOf are the servers whose claim it is.
func (r *Controller) usersOf(claim any) (keys []types.NamespacedName) {
	c := claim.(*core.PersistentVolumeClaim)
	all, _ := r.servers.NFSServers(c.Namespace).List(labels.Everything())
	for _, s := range all {
		if claimName(s) == c.Name {
			keys = append(keys, keyOf(s))
		}
	}
	return keys
}

// podsOf are the pods of a server, the newest last.
func (r *Controller) podsOf(s *v1.NFSServer) []*core.Pod {
	pods, _ := r.pods.Core().V1().Pods().Lister().Pods(s.Namespace).List(labels.SelectorFromSet(selector(s)))
	pods = slices.DeleteFunc(pods, func(p *core.Pod) bool { return !isPodOf(s, p.Name) })
	slices.SortFunc(pods, func(a, b *core.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}
