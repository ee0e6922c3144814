// Package cluster reconciles the StorageCluster: the node pods, the driver, the classes, the service, and the
// controller's own workload, in which it runs. It also removes all of it with the StorageCluster.
//
// Package render computes the desired objects; situation.status computes the status from what is observed alone.
// Controller observes, applies and writes the status if it differs.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/record"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/held"
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
	Kinds     Definitions          // nil: all exist, and stay
	Driver    string               // the name by which nodes register with their kubelet
	Events    record.EventRecorder // nil writes none
	Log       *slog.Logger         // nil discards

	// StatusDelay is how long changes that only affect the status are collected; 0 means a second.
	StatusDelay time.Duration
	// RemakeAfter is the delay before the controller recreates its own workload after a deletion; 0 means the default.
	RemakeAfter time.Duration
}

// Definitions knows whether the kinds exist.
type Definitions interface {
	// Whole says whether a kind, such as volumes, exists and is not being deleted. Otherwise its cache is incomplete.
	Whole(resource string) bool
	// Returning says whether StorageClusters are deleted only with their kind, to be recreated. Their objects must stay.
	Returning() bool
}

// Controller reconciles the StorageClusters, of which one is served.
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
	classes      storagelisters.StorageClassLister
	caches       rollout.Caches
	secrets      *kube.SecretWatch
	cephSecrets  cephSecrets

	written    kube.Writer[*v1beta1.StorageCluster, v1beta1.StorageClusterStatus]
	unreadable kube.UnreadableReporter
	counted    atomic.Bool // no Volume or Snapshot has changed in a way that matters since recount

	// State between passes, for the only worker of the loop.
	good             map[string][]*unstructured.Unstructured // the objects of the last spec that could be rendered
	stored           held.Stored                             // as recount found it
	unreachable      []*v1beta1.Volume                       // likewise
	other            otherRelease
	overwritten      string    // the release whose manifest was reverted, until the status reports it
	ownSeen          bool      // by this process: the controller's own workload
	ownGone          time.Time // since when it does not exist any more; zero while it does
	othersHome       bool      // the namespace is not of the manifest
	attachedReleased bool      // the finalizers of a removed external-attacher are removed
}

const defaultStatusDelay = time.Second

// New checks the configuration and registers with the informers.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Owned == nil || c.Watches == nil || c.Namespace == "" || c.Driver == "" {
		return nil, errors.New("the operator needs clients, informers, a namespace and the name of the driver")
	}
	c.StatusDelay, c.RemakeAfter = cmp.Or(c.StatusDelay, defaultStatusDelay), cmp.Or(c.RemakeAfter, defaultRemakeAfter)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Events = cmp.Or(c.Events, kube.NoEvents)
	if c.Kinds == nil {
		c.Kinds = allThere{}
	}
	kinds, kubernetes := c.Watches.Holdfast.Holdfast().V1beta1(), c.Watches.Cluster.Core().V1()
	r := &Controller{
		Config:   c,
		clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(),
		jobs: kinds.NodeJobs().Lister(), upgrades: kinds.StorageUpgrades().Lister(),
		nodes: kubernetes.Nodes().Lister(), pods: kubernetes.Pods().Lister(),
		classes: c.Watches.Cluster.Storage().V1().StorageClasses().Lister(),
		caches: rollout.Caches{
			Owned: c.Owned, Pods: kubernetes.Pods().Lister(), StorageNodes: kinds.StorageNodes().Lister(),
			CSINodes: c.Watches.Cluster.Storage().V1().CSINodes().Lister(), Namespace: c.Namespace, Driver: c.Driver,
		},
		written: kube.Writer[*v1beta1.StorageCluster, v1beta1.StorageClusterStatus]{
			Client:  func(string) kube.Client[*v1beta1.StorageCluster] { return c.Client.HoldfastV1beta1().StorageClusters() },
			Status:  func(o *v1beta1.StorageCluster) *v1beta1.StorageClusterStatus { return &o.Status },
			Manager: apply.FieldManager,
		},
		good: map[string][]*unstructured.Unstructured{}, cephSecrets: cephSecrets{},
	}
	r.secrets = kube.NewSecretWatch(c.Kubernetes, r.touch)
	var err error
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "storagecluster", Reconcile: r.reconcile, Log: c.Log}); err != nil {
		return nil, err
	}
	return r, r.listen()
}

// Run reconciles StorageClusters until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	defer r.secrets.Stop()
	err := r.loop.Run(ctx)
	defer r.cephSecrets.stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.RemakeAfter+remakeLasts)
	defer cancel()
	if err := r.remakeOwn(last); err != nil {
		r.Log.Warn("the controller's workload was deleted and could not be recreated: apply the manifest", "error", err)
	}
	return err
}

// reconcile reconciles one StorageCluster.
func (r *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	cached, _ := r.clusters.Get(name) // the only error of a cache is that there is none
	if cached == nil {
		r.forget(name)
		return 0, nil
	}
	c := r.written.Newest(cached)
	again, err := r.see(ctx, c, v1beta1.Served(kube.Cached(r.clusters.List)))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r.StatusDelay, nil // the cache was behind
	}
	return again, err
}

func (r *Controller) see(ctx context.Context, c *v1beta1.StorageCluster, served *v1beta1.StorageCluster) (time.Duration, error) {
	switch taskFor(c, served) {
	case taskWait:
		return r.StatusDelay, nil
	case taskHandOver:
		return r.handOver(ctx, c)
	case taskKeepLast:
		return r.keepLast(ctx, c)
	case taskRefuse:
		return 0, r.write(ctx, c, refused(c, served))
	case taskRemove:
		return r.remove(ctx, c)
	case taskReport:
		s := r.observe(c)
		return 0, errors.Join(r.labelNodes(ctx, s.clientLabels()), r.write(ctx, c, s.status()))
	}
	c, err := r.written.AddFinalizer(ctx, c, v1beta1.OperatorFinalizer) // its objects must be removed before it
	if err != nil {
		return 0, err
	}
	if c, err = r.unpin(ctx, c); err != nil {
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

func (r *Controller) forget(name string) {
	r.written.Forget(name)
	delete(r.good, name)
}
