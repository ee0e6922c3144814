// Package nfsserver runs NFSServers: for each a claim, a Service with a stable address, and one pod; and the rights that
// all of them share. It also removes all of it with the NFSServer, unless volumes would be lost.
//
// A pass over a server is one round: observe gathers what a decision depends on, newPlan decides and is pure, apply
// carries the plan out, and conclude computes the status from what was observed, planned and applied.
//
// The order in which a plan is carried out is for safety:
//
//   - The finalizer comes before anything that has to be removed with the server.
//   - A PersistentVolume with data is kept before its claim is touched: the data outlives the claim.
//   - The policies that limit the accounts of servers come before their rights, and these before the pod that uses them.
//     All servers share them, so one worker at a time observes, plans and applies them: none writes what it has seen
//     before another.
//   - The Service comes one pass before the pod. The policies let a server write its own address alone, and by the pass
//     that makes the pod they have it.
//   - Objects that are no longer desired are pruned last, and only if all desired ones were applied.
//   - A removal ends the pod before it asks for volumes a last time: then none can come. Data is released before its
//     claim goes, and the finalizer is the last of all.
//
// While the StorageCluster is paused or cannot be read, and while the spec of a server cannot be read or served, what runs
// is left as it is.
package nfsserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	// Owned has the objects in the namespace of Holdfast, the kinds of RBAC among them.
	Owned *apply.Set
	// Servers has the objects of Kinds in all namespaces; Label names the instance.
	Servers *apply.Set
	// Watches are of the process, in Namespace; who made them starts them, after New.
	Watches   *kube.Watches
	Namespace string               // of Holdfast, where Leases are
	Release   render.Release       // of this program
	Events    record.EventRecorder // nil writes none
	Log       *slog.Logger         // nil discards
	// Whole says whether a kind, such as volumes, exists and is not being deleted.
	Whole func(resource string) bool

	// StatusDelay is how long changes that only affect the status are collected; 0 means a second.
	StatusDelay time.Duration
}

// Controller reconciles all NFSServers of a cluster.
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
	written      kube.Writer[*v1beta1.NFSServer, v1beta1.NFSServerStatus]
	unreadable   kube.UnreadableReporter

	kept    sync.Map // by the UIDs of claims, when their PersistentVolume last did outlive them
	given   sync.Map // UIDs of servers that got their rights from this process, which edits of the Role do not take away
	besides sync.Map // by the names of nodes, their addresses beside those of their pods
	barred  sync.Map // by the UIDs of servers, when users last kept an object of it from being written

	rights sync.Mutex // held from observing the rights to writing them, so that no stale state is written
}

const (
	component          = "holdfast-nfsserver"
	workers            = 4
	defaultStatusDelay = time.Second
)

// Kinds are those of the objects of a server.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"},
		{Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: networkPolicy.Group, Version: "v1", Kind: networkPolicy.Kind},
		{Group: ciliumPolicy.Group, Version: "v2", Kind: ciliumPolicy.Kind},
		{Group: ciliumNode.Group, Version: "v2", Kind: ciliumNode.Kind}, // no object of it is created: the kind shows that Cilium runs
	}
}

// New checks the configuration and asks the informers for what it needs.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Owned == nil || c.Servers == nil || c.Watches == nil || c.Namespace == "" {
		return nil, errors.New("NFS servers need clients, informers and a namespace")
	}
	c.StatusDelay = cmp.Or(c.StatusDelay, defaultStatusDelay)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Events = cmp.Or(c.Events, kube.NoEvents)
	kinds, kubernetes := c.Watches.Holdfast.Holdfast().V1beta1(), c.Watches.Cluster.Core().V1()
	r := &Controller{
		Config: c, pods: watchPods(c.Kubernetes),
		servers: kinds.NFSServers().Lister(), clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(),
		nodes: kubernetes.Nodes().Lister(), namespaces: kubernetes.Namespaces().Lister(),
		written: kube.Writer[*v1beta1.NFSServer, v1beta1.NFSServerStatus]{
			Client: func(namespace string) kube.Client[*v1beta1.NFSServer] {
				return c.Client.HoldfastV1beta1().NFSServers(namespace)
			},
			Status:  func(o *v1beta1.NFSServer) *v1beta1.NFSServerStatus { return &o.Status },
			Manager: apply.FieldManager,
		},
	}
	var err error
	r.loop, err = kube.NewLoop(kube.LoopConfig[types.NamespacedName]{Name: "nfsserver", Reconcile: r.reconcile, Workers: workers, Log: c.Log})
	if err != nil {
		return nil, err
	}
	return r, r.watch()
}

// Run reconciles servers until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.pods.StartWithContext(ctx)
	return c.loop.Run(ctx)
}
