// Package nfsserver runs NFSServers: for each a claim, a Service whose address stays, and one pod; and the rights that
// all of them share. It also removes all of it with the NFSServer, unless volumes would be lost.
//
// objectsOf says what is to run and situation.status what is, by what is observed and nothing else; Controller observes,
// applies and writes.
package nfsserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	// Owned is of the namespace of Holdfast, and has the kinds of rights.
	Owned *apply.Set
	// Servers is everywhere, has Kinds, and Label stands for its instances.
	Servers *apply.Set
	// Watches are of the process, in Namespace; who made them starts them, after New.
	Watches   *kube.Watches
	Namespace string               // of Holdfast, where Leases are
	Release   render.Release       // of this program
	Events    record.EventRecorder // nil writes none
	Log       *slog.Logger         // nil discards
	// Whole says whether a kind, such as volumes, is there and not on its way out; nil: all are.
	Whole func(resource string) bool

	// Settle is how long changes are gathered that only the status shows; 0 means a second.
	Settle time.Duration
}

// Controller sees to all NFSServers of a cluster.
type Controller struct {
	Config

	loop         *kube.Loop[types.NamespacedName]
	pods         kubeinformers.SharedInformerFactory
	servers      listers.NFSServerLister
	clusters     listers.StorageClusterLister
	storageNodes listers.StorageNodeLister
	volumes      listers.VolumeLister
	snapshots    listers.SnapshotLister
	nodes        corelisters.NodeLister
	namespaces   corelisters.NamespaceLister
	written      kube.Writer[*v1.NFSServer, v1.NFSServerStatus]
	unreadable   kube.UnreadableReporter

	kept  sync.Map // UIDs of claims whose PersistentVolume outlives them
	given sync.Map // UIDs of servers that got their rights from this process: who edits the Role takes none from them

	rights sync.Mutex // one writes them at a time, so that none writes what it has seen before another
}

const (
	component     = "holdfast-nfsserver"
	workers       = 4
	defaultSettle = time.Second
)

// Kinds are those of the objects of a server.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"},
		{Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: networkPolicy.Group, Version: "v1", Kind: networkPolicy.Kind},
		{Group: ciliumPolicy.Group, Version: "v2", Kind: ciliumPolicy.Kind},
		{Group: ciliumNode.Group, Version: "v2", Kind: ciliumNode.Kind}, // of which none is made: that there is the kind tells of Cilium
	}
}

// New checks the configuration and asks the informers for what it needs.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Owned == nil || c.Servers == nil || c.Watches == nil || c.Namespace == "" {
		return nil, errors.New("NFS servers need clients, informers and a namespace")
	}
	c.Settle = cmp.Or(c.Settle, defaultSettle)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Events = cmp.Or[record.EventRecorder](c.Events, kube.NoEvents{})
	if c.Whole == nil {
		c.Whole = func(string) bool { return true }
	}
	kinds, kubernetes := c.Watches.Holdfast.Holdfast().V1(), c.Watches.Cluster.Core().V1()
	r := &Controller{
		Config: c, pods: watchPods(c.Kubernetes),
		servers: kinds.NFSServers().Lister(), clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(),
		nodes: kubernetes.Nodes().Lister(), namespaces: kubernetes.Namespaces().Lister(),
		written: kube.Writer[*v1.NFSServer, v1.NFSServerStatus]{
			Client:  func(namespace string) kube.Client[*v1.NFSServer] { return c.Client.HoldfastV1().NFSServers(namespace) },
			Status:  func(o *v1.NFSServer) *v1.NFSServerStatus { return &o.Status },
			Manager: apply.FieldManager,
		},
	}
	var err error
	r.loop, err = kube.NewLoop(kube.LoopConfig[types.NamespacedName]{Name: "nfsserver", Reconcile: r.reconcile, Workers: workers, Log: c.Log})
	if err != nil {
		return nil, err
	}
	return r, r.listen()
}

// Run sees to the servers until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	r.pods.StartWithContext(ctx)
	return r.loop.Run(ctx)
}

// reconcile sees to one server.
func (r *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	cached, err := r.servers.NFSServers(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		r.written.Forget(key.String())
		for _, kind := range []string{"nfsservers", "storageclusters"} {
			if !r.Whole(kind) { // it may be made again with its kind, and the pod is there all the time
				return r.Settle, nil
			}
		}
		return 0, r.removeRights(ctx, key, false)
	}
	if err != nil {
		return 0, err
	}
	again, err := r.see(ctx, r.written.Newest(cached))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r.Settle, nil // the cache was behind
	}
	return again, err
}

func (r *Controller) see(ctx context.Context, s *v1.NFSServer) (time.Duration, error) {
	cluster, err := r.cluster()
	if err != nil {
		return 0, err
	}
	switch {
	case s.Unreadable() != nil:
		return 0, r.tellUnreadable(ctx, s)
	case (cluster.Spec.Pause || cluster.Unreadable() != nil) && s.DeletionTimestamp == nil:
		now, err := r.observe(s, cluster)
		if err != nil {
			return 0, err
		}
		return 0, r.write(ctx, s, now.status())
	case s.DeletionTimestamp != nil:
		return r.remove(ctx, s, cluster)
	}
	if r.entitled(s, cluster) { // there is something to be removed with it
		if s, err = r.written.AddFinalizer(ctx, s, v1.OperatorFinalizer); err != nil {
			return 0, err
		}
	}
	now, again, err := r.maintain(ctx, s, cluster, "")
	if err != nil {
		return 0, err
	}
	return again, r.write(ctx, s, now.status())
}

// cluster is the StorageCluster that is served. Without one, servers get what a StorageCluster gives that says nothing.
func (r *Controller) cluster() (*v1.StorageCluster, error) {
	all, err := r.clusters.List(labels.Everything())
	return cmp.Or(v1.Served(all), &v1.StorageCluster{}), err
}

func keyOf(s *v1.NFSServer) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}
