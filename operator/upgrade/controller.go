// Package upgrade updates a cluster to another image of Holdfast, step by step, and rolls back if a step fails.
//
// newPlan decides only from what is observed; Controller observes and applies. All state is in the objects, so any
// replica, of the old release or the new one, continues where another was killed.
package upgrade

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// Workloads are the objects of the operator, an apply.Set.
type Workloads interface {
	Apply(ctx context.Context, objects []*unstructured.Unstructured) apply.Outcome
	Refusal(ctx context.Context, objects []*unstructured.Unstructured) (refusal, err error)
	// Has says whether the API server has a kind.
	Has(schema.GroupKind) bool
	Get(apply.Ref) *unstructured.Unstructured
	// Listen is called in New.
	Listen(changed func(apply.Ref))
}

// NFSServers are updated after the nodes.
type NFSServers interface {
	// Outdated returns the image that servers need and the nodes of those with another; "" if no update is needed.
	Outdated(image v1beta1.Image) (nfs v1beta1.Image, nodes []string)
	// Upgrade updates them one by one, and reports the progress: next, NAMESPACE/NAME, is "" at the end. Those that did
	// not serve when the upgrade began are updated and unawaited.
	Upgrade(ctx context.Context, image v1beta1.Image, began time.Time) (next, waiting string, unawaited []string, err error)
	// RollBack updates all at once.
	RollBack(ctx context.Context, image v1beta1.Image) error
	// Workloads names their StatefulSets.
	Workloads() []types.NamespacedName
}

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	// Owned is shared with the loop of the StorageCluster.
	Owned Workloads
	// Watches are of the process, in Namespace; who made them starts them, after New.
	Watches   *kube.Watches
	Namespace string
	Release   render.Release // of this program
	Driver    string         // the name by which nodes register with their kubelet
	// Metadata is the version of what this program writes on disk.
	Metadata int
	NFS      NFSServers
	Log      *slog.Logger // nil discards
}

// Controller reconciles all StorageUpgrades, of which one runs.
type Controller struct {
	Config

	loop     *kube.Loop[string]
	upgrades listers.StorageUpgradeLister
	clusters listers.StorageClusterLister
	jobs     listers.NodeJobLister
	nodes    corelisters.NodeLister
	caches   rollout.Caches

	written kube.Writer[*v1beta1.StorageUpgrade, v1beta1.StorageUpgradeStatus]
	paused  kube.Written[*v1beta1.StorageCluster]

	unreadable kube.UnreadableReporter

	// trouble has by upgrade why its last pass could not do what it was to do. Only the worker uses it.
	trouble map[string]string
}

const component = rollout.UpgradeManager

// New checks the configuration and asks the informers for what it needs.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Owned == nil || c.Watches == nil || c.NFS == nil || c.Namespace == "" || c.Driver == "" || c.Metadata < 1 {
		return nil, errors.New("upgrades need clients, informers, NFS servers, a namespace, the name of the driver, and the version of the metadata on disk")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	kinds := c.Watches.Holdfast.Holdfast().V1beta1()
	r := &Controller{
		Config:   c,
		upgrades: kinds.StorageUpgrades().Lister(), clusters: kinds.StorageClusters().Lister(), jobs: kinds.NodeJobs().Lister(),
		nodes: c.Watches.Cluster.Core().V1().Nodes().Lister(),
		caches: rollout.Caches{
			Owned: c.Owned, Pods: c.Watches.Cluster.Core().V1().Pods().Lister(), StorageNodes: kinds.StorageNodes().Lister(),
			CSINodes: c.Watches.Cluster.Storage().V1().CSINodes().Lister(), Namespace: c.Namespace, Driver: c.Driver,
		},
		written: kube.Writer[*v1beta1.StorageUpgrade, v1beta1.StorageUpgradeStatus]{
			Client:  func(string) kube.Client[*v1beta1.StorageUpgrade] { return c.Client.HoldfastV1beta1().StorageUpgrades() },
			Status:  func(o *v1beta1.StorageUpgrade) *v1beta1.StorageUpgradeStatus { return &o.Status },
			Manager: component,
		},
		trouble: map[string]string{},
	}
	var err error
	// One worker, so that two upgrades cannot both decide that they run first.
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "storageupgrade", Reconcile: r.reconcile, Workers: 1, Log: c.Log, RetryLast: 5 * time.Second}); err != nil {
		return nil, err
	}
	return r, r.watch()
}

// Run reconciles the upgrades until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// watch queues every unfinished upgrade when something changes that one may wait for.
func (c *Controller) watch() error {
	c.Owned.Listen(func(r apply.Ref) {
		if r.Kind == "DaemonSet" || r.Kind == "Deployment" || r.Kind == "StatefulSet" {
			c.touch()
		}
	})
	kinds := c.Watches.Holdfast.Holdfast().V1beta1()
	all := func(any) []string { return c.open() }
	return errors.Join(
		c.loop.Watch(kinds.StorageUpgrades().Informer(), func(o any) []string {
			return append(c.open(), o.(metav1.Object).GetName())
		}),
		c.loop.Watch(kinds.StorageClusters().Informer(), func(o any) []string {
			if by := o.(metav1.Object).GetAnnotations()[v1beta1.PausedByAnnotation]; by != "" { // it may not exist any more
				return append(c.open(), by)
			}
			return c.open()
		}),
		c.loop.Watch(kinds.NodeJobs().Informer(), all),
		c.loop.WatchChanges(kinds.StorageNodes().Informer(), all, func(old, now any) bool {
			return readiness(old.(*v1beta1.StorageNode)) != readiness(now.(*v1beta1.StorageNode))
		}),
		c.loop.Watch(c.Watches.Cluster.Core().V1().Pods().Informer(), all),
		// Their changes queue no upgrade, but they must be cached.
		c.loop.WatchChanges(c.Watches.Cluster.Core().V1().Nodes().Informer(), all, func(any, any) bool { return false }),
		c.loop.WatchChanges(c.Watches.Cluster.Storage().V1().CSINodes().Informer(), all, func(old, now any) bool {
			return rollout.IsRegistered(old.(*storage.CSINode), c.Driver) != rollout.IsRegistered(now.(*storage.CSINode), c.Driver)
		}),
	)
}

func (c *Controller) touch() {
	for _, name := range c.open() {
		c.loop.Enqueue(name)
	}
}

// open returns the upgrades that have not ended, or still have a finalizer.
func (c *Controller) open() (names []string) {
	for _, u := range kube.Cached(c.upgrades.List) {
		if !hasEnded(u) || len(u.Finalizers) > 0 {
			names = append(names, u.Name)
		}
	}
	return names
}
