// Package cluster makes what a StorageCluster asks for and keeps it so: the node pods, the driver, the classes,
// the service, and the controller's own workload, in which it runs. It also removes all of it with the StorageCluster.
//
// What is to be is rendered by package render; situation.status says what is, and nothing but the observed decides it.
// Controller observes, applies and writes the status where it differs.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/record"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/operator/snapshots"
)

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	// Owned has Kinds among its kinds.
	Owned *apply.Set
	// Watches are of the process, in Namespace; who made them starts them, after New.
	Watches   *kube.Watches
	Namespace string
	Release   render.Release       // of this program
	Snapshots *snapshots.Kinds     // nil brings none
	Kinds     Definitions          // nil: they are all there, and stay
	Driver    string               // the name by which nodes register with their kubelet
	Events    record.EventRecorder // nil writes none
	Log       *slog.Logger         // nil discards

	// Settle is how long changes are gathered that only the status shows; 0 means a second.
	Settle time.Duration
}

// Definitions knows whether the kinds are there.
type Definitions interface {
	// Whole says whether a kind, such as volumes, is there and not on its way out. Of one that is not, a cache shows less
	// than there is.
	Whole(resource string) bool
	// Returning says whether StorageClusters go only to be made again with their kind. Nothing of theirs may go with them.
	Returning() bool
}

// Controller sees to the StorageClusters, of which one is served.
type Controller struct {
	Config
	loop *kube.Loop[string]

	clusters     listers.StorageClusterLister
	storageNodes listers.StorageNodeLister
	volumes      listers.VolumeLister
	snapshots    listers.SnapshotLister
	jobs         listers.NodeJobLister
	upgrades     listers.StorageUpgradeLister
	nodes        corelisters.NodeLister
	pods         corelisters.PodLister
	csiNodes     storagelisters.CSINodeLister
	secrets      *kube.SecretWatch

	written    kube.Writer[*v1.StorageCluster, v1.StorageClusterStatus]
	unreadable kube.UnreadableReporter

	mu    sync.Mutex
	good  map[string][]*unstructured.Unstructured // what the last spec that could be rendered asked for
	other otherRelease

	overwritten string // the release whose manifest was put right and the status does not say so yet; only the loop looks

	attachedReleased bool // the finalizers of an attacher that does not run any more are off; only the loop looks
}

const defaultSettle = time.Second

// New checks the configuration and registers with the informers.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Owned == nil || c.Watches == nil || c.Namespace == "" || c.Driver == "" {
		return nil, errors.New("the operator needs clients, informers, a namespace and the name of the driver")
	}
	c.Settle = cmp.Or(c.Settle, defaultSettle)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Events = cmp.Or[record.EventRecorder](c.Events, kube.NoEvents{})
	if c.Kinds == nil {
		c.Kinds = allThere{}
	}
	kinds, kubernetes := c.Watches.Holdfast.Holdfast().V1(), c.Watches.Cluster.Core().V1()
	r := &Controller{
		Config:   c,
		clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(),
		jobs: kinds.NodeJobs().Lister(), upgrades: kinds.StorageUpgrades().Lister(),
		nodes: kubernetes.Nodes().Lister(), pods: kubernetes.Pods().Lister(), csiNodes: c.Watches.Cluster.Storage().V1().CSINodes().Lister(),
		written: kube.Writer[*v1.StorageCluster, v1.StorageClusterStatus]{
			Client:  func(string) kube.Client[*v1.StorageCluster] { return c.Client.HoldfastV1().StorageClusters() },
			Status:  func(o *v1.StorageCluster) *v1.StorageClusterStatus { return &o.Status },
			Manager: apply.FieldManager,
		},
		good: map[string][]*unstructured.Unstructured{},
	}
	r.secrets = kube.NewSecretWatch(c.Kubernetes, r.touch)
	var err error
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "storagecluster", Reconcile: r.reconcile, Log: c.Log}); err != nil {
		return nil, err
	}
	return r, r.listen()
}

// Run sees to StorageClusters until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	defer r.secrets.Stop()
	return r.loop.Run(ctx)
}

// touch makes all clusters be looked at: there is one, and rarely another that is refused.
func (r *Controller) touch() { r.touchAfter(0) }

func (r *Controller) touchAfter(d time.Duration) {
	all, _ := r.clusters.List(labels.Everything()) // a cache has no errors
	for _, c := range all {
		if d == 0 {
			r.loop.Enqueue(c.Name)
		} else {
			r.loop.EnqueueAfter(c.Name, d)
		}
	}
}

// listen registers what makes clusters be looked at. What only changes numbers in the status waits a moment for more.
func (r *Controller) listen() error {
	kinds, kubernetes := r.Watches.Holdfast.Holdfast().V1(), r.Watches.Cluster.Core().V1()
	r.Owned.Listen(func(apply.Ref) { r.touch() })
	now := func(any) []string { r.touch(); return nil }
	soon := func(any) []string { r.touchAfter(r.Settle); return nil }
	never := func(any, any) bool { return false }
	return errors.Join(
		r.loop.Watch(kinds.StorageClusters().Informer(), func(o any) []string { return []string{o.(*v1.StorageCluster).Name} }),
		r.loop.WatchChanges(kinds.StorageClusters().Informer(), now, func(old, now any) bool { // who is served may change
			return old.(*v1.StorageCluster).DeletionTimestamp.IsZero() != now.(*v1.StorageCluster).DeletionTimestamp.IsZero()
		}),
		r.loop.WatchChanges(kinds.Volumes().Informer(), soon, volumeMatters),
		r.loop.WatchChanges(kinds.Snapshots().Informer(), soon, snapshotMatters),
		r.loop.WatchChanges(kinds.NodeJobs().Informer(), soon, never),
		r.loop.WatchChanges(kinds.StorageUpgrades().Informer(), soon, never),
		r.loop.WatchChanges(kinds.StorageNodes().Informer(), now, storageNodeMatters),
		r.loop.WatchChanges(kubernetes.Nodes().Informer(), now, nodeMatters),
		r.loop.WatchChanges(kubernetes.Pods().Informer(), func(o any) []string {
			switch o.(*core.Pod).Labels[componentLabel] {
			case nodeComponent, loopSetsComponent, controllerComponent:
				r.touch()
			}
			return nil
		}, nil),
		r.loop.WatchChanges(r.Watches.Cluster.Storage().V1().CSINodes().Informer(), now, func(old, now any) bool {
			return rollout.IsRegistered(old.(*storage.CSINode), r.Driver) != rollout.IsRegistered(now.(*storage.CSINode), r.Driver)
		}),
	)
}

// reconcile sees to one StorageCluster.
func (r *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	c, err := r.cluster(name)
	if apierrors.IsNotFound(err) {
		r.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := r.clusters.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	served := v1.Served(all)
	again, err := r.see(ctx, c, served)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r.Settle, nil // the cache was behind
	}
	return again, err
}

func (r *Controller) see(ctx context.Context, c *v1.StorageCluster, served *v1.StorageCluster) (time.Duration, error) {
	switch {
	case served == nil: // the cache has just lost it
		return r.Settle, nil
	case served.UID != c.UID && c.DeletionTimestamp != nil:
		return r.handOver(ctx, c)
	case c.Unreadable() != nil:
		return r.keepLast(ctx, c)
	case served.UID != c.UID:
		return 0, r.write(ctx, c, refused(c, served))
	case c.DeletionTimestamp != nil:
		return r.remove(ctx, c)
	case c.Spec.Pause:
		s := r.observe(c)
		return 0, r.write(ctx, c, s.status())
	}
	c, err := r.written.AddFinalizer(ctx, c, v1.OperatorFinalizer) // it does not go without what it made
	if err != nil {
		return 0, err
	}
	if other := r.otherRelease(c, r.installedOver(c)); other != "" {
		s := r.observe(c)
		s.handingTo = other
		return handingOver, r.write(ctx, c, s.status())
	}
	s, again, err := r.maintain(ctx, c)
	if err != nil || s == nil {
		return 0, err
	}
	if c.Spec.Images.Holdfast != "" {
		s.ignored = r.overwritten
	}
	if err := r.write(ctx, c, s.status()); err != nil {
		return 0, err
	}
	r.overwritten = ""
	return again, nil
}

// cluster returns the newest that is known of a StorageCluster.
func (r *Controller) cluster(name string) (*v1.StorageCluster, error) {
	cached, err := r.clusters.Get(name)
	if err != nil {
		return nil, err
	}
	return r.written.Newest(cached), nil
}

func (r *Controller) forget(name string) {
	r.written.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.good, name)
}
