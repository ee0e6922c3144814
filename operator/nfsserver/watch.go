package nfsserver

import (
	"errors"
	"maps"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// watchPods watches the servers' pods in all namespaces.
func watchPods(client kubernetes.Interface) kubeinformers.SharedInformerFactory {
	return kubeinformers.NewSharedInformerFactoryWithOptions(client, 0, kubeinformers.WithTransform(kube.Slim), kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: serverComponent}.String()
	}))
}

// watch registers the handlers that queue servers. Changes of numbers alone are delayed, to be collected.
func (c *Controller) watch() error {
	kinds, cluster := c.Watches.Holdfast.Holdfast().V1beta1(), c.Watches.Cluster.Core().V1()
	c.Servers.Listen(func(ref apply.Ref) {
		if key, is := serverOf(ref.NamespacedName); is {
			c.loop.Enqueue(key)
		}
		if ref.Name == rightsName {
			for _, key := range c.in(ref.Namespace) {
				c.loop.Enqueue(key)
			}
		}
	})
	c.Owned.Listen(func(ref apply.Ref) {
		if strings.HasPrefix(ref.Name, rightsName) { // the limits, too
			c.enqueueAll()
		}
	})
	all := func(any) []types.NamespacedName { c.enqueueAll(); return nil }
	return errors.Join(
		c.loop.Watch(kinds.NFSServers().Informer(), func(o any) []types.NamespacedName { return []types.NamespacedName{keyOf(o.(*v1beta1.NFSServer))} }),
		c.loop.WatchChanges(kinds.StorageClusters().Informer(), all, func(old, now any) bool {
			return old.(*v1beta1.StorageCluster).Generation != now.(*v1beta1.StorageCluster).Generation
		}),
		c.loop.WatchChanges(kinds.Volumes().Informer(), c.soon(func(o any) string { return o.(*v1beta1.Volume).Spec.Node }), func(old, now any) bool {
			return (old.(*v1beta1.Volume).Status.CreationTime == nil) != (now.(*v1beta1.Volume).Status.CreationTime == nil)
		}),
		c.loop.WatchChanges(kinds.Snapshots().Informer(), c.soon(func(o any) string { return o.(*v1beta1.Snapshot).Spec.Node }), never),
		c.loop.WatchChanges(kinds.StorageNodes().Informer(), c.soon(func(o any) string { return o.(*v1beta1.StorageNode).Name }), nil),
		c.loop.Watch(c.pods.Core().V1().Pods().Informer(), func(o any) []types.NamespacedName {
			p := o.(*core.Pod)
			return []types.NamespacedName{{Namespace: p.Namespace, Name: p.Labels[Label]}}
		}),
		c.loop.Watch(c.Watches.Everywhere.Core().V1().PersistentVolumeClaims().Informer(), c.usersOf),
		c.loop.WatchChanges(cluster.Namespaces().Informer(), func(o any) []types.NamespacedName { return c.in(o.(*core.Namespace).Name) }, func(old, now any) bool {
			was, is := old.(*core.Namespace), now.(*core.Namespace)
			return !equality.Semantic.DeepEqual(was.Labels, is.Labels) || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil)
		}),
		c.loop.WatchChanges(cluster.Nodes().Informer(), c.each(func(*v1beta1.NFSServer) bool { return true }), nodeAddressesChanged),
		c.loop.WatchChanges(cluster.Nodes().Informer(), c.each(hasDirectory), func(old, now any) bool { // whose terms select nodes
			return !maps.Equal(old.(*core.Node).Labels, now.(*core.Node).Labels)
		}),
		c.loop.WatchChanges(kinds.StorageNodes().Informer(), c.each(func(*v1beta1.NFSServer) bool { return true }), reportedAddressesChanged),
	)
}

func never(any, any) bool { return false }

// soon queues, after a delay, the server that node names.
func (c *Controller) soon(node func(any) string) func(any) []types.NamespacedName {
	return func(o any) []types.NamespacedName {
		if namespace, name, is := v1beta1.ParseNFSNode(node(o)); is {
			c.loop.EnqueueAfter(types.NamespacedName{Namespace: namespace, Name: name}, c.StatusDelay)
		}
		return nil
	}
}

// each queues, after a delay, the servers that depend on every node.
func (c *Controller) each(depends func(*v1beta1.NFSServer) bool) func(any) []types.NamespacedName {
	return func(any) []types.NamespacedName {
		for _, s := range c.all() {
			if depends(s) {
				c.loop.EnqueueAfter(keyOf(s), c.StatusDelay)
			}
		}
		return nil
	}
}

func (c *Controller) enqueueAll() {
	for _, s := range c.all() {
		c.loop.Enqueue(keyOf(s))
	}
}

func (c *Controller) all() []*v1beta1.NFSServer {
	return kube.Cached(c.servers.List)
}

func (c *Controller) in(namespace string) (keys []types.NamespacedName) {
	for _, s := range kube.Cached(c.servers.NFSServers(namespace).List) {
		keys = append(keys, keyOf(s))
	}
	return keys
}

func (c *Controller) usersOf(claim any) (keys []types.NamespacedName) {
	used := claim.(*core.PersistentVolumeClaim)
	for _, s := range kube.Cached(c.servers.NFSServers(used.Namespace).List) {
		if claimName(s) == used.Name {
			keys = append(keys, keyOf(s))
		}
	}
	return keys
}

func keyOf(s *v1beta1.NFSServer) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}
