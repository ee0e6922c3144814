// Package definitions keeps the kinds of Holdfast while it is installed. Deleting a kind deletes its objects, and a
// deletion cannot be cancelled: a kind that is being deleted must be gone before it can be recreated. So the finalizers
// of the objects are removed, since their data is on disks, where the agents find it; the StorageCluster and the
// NFSServers, whose state is only in the objects, are kept in a ConfigMap and recreated with the kind.
package definitions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// Owner has objects that the garbage collector would delete with their StorageCluster or NFSServer.
type Owner interface {
	// OwnedBy returns the objects with an owner reference to an object.
	OwnedBy(types.UID) []*unstructured.Unstructured
	// Disown removes the owner references of an object.
	Disown(context.Context, *unstructured.Unstructured) error
}

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Namespace  string
	Owners     []Owner
	// First creates the StorageCluster of an installation that has none; nil creates none.
	First func(context.Context) error
	// OnlyMissing only creates missing definitions. Every replica may do that at any time, and must: without them none
	// gets as far as leading.
	OnlyMissing bool
	Log         *slog.Logger // nil discards
}

// Controller reconciles the definitions of the kinds.
type Controller struct {
	Config
	loop     *kube.Loop[string]
	informer cache.SharedIndexInformer
	names    []string

	returning atomic.Bool // the finalizer of the StorageCluster is removed, and it will be recreated
	restored  sync.Map    // UIDs of the kinds, by name, when their stored objects were last recreated
	releases  sync.Map    // the *apply.Release, by kind, to which it belongs or belonged before it was deleted
}

// The definitions to reconcile.
var (
	volumes         = name("volumes")
	snapshots       = name("snapshots")
	storageClusters = name("storageclusters")
	nfsServers      = name("nfsservers")
)

func name(resource string) string { return resource + "." + v1beta1.GroupName }

// New checks the configuration.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Dynamic == nil || c.Namespace == "" {
		return nil, errors.New("the definitions need clients and a namespace")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	r := &Controller{Config: c}
	for _, d := range deploy.Definitions() {
		r.names = append(r.names, d.GetName())
	}
	var err error
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "definitions", Reconcile: r.reconcile, Log: c.Log}); err != nil {
		return nil, err
	}
	r.informer = dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, kube.Definitions, metav1.NamespaceAll, 0, nil, nil).Informer()
	if err := r.informer.SetTransform(r.slim); err != nil {
		return nil, err
	}
	return r, r.loop.Watch(r.informer, r.ours)
}

// ours returns the names to reconcile when a definition changes.
func (r *Controller) ours(o any) []string {
	if name := o.(*unstructured.Unstructured).GetName(); slices.Contains(r.names, name) {
		return []string{name}
	}
	return nil
}

// slim keeps the fields that show whether a kind exists and is served, and remembers its Helm release.
func (r *Controller) slim(o any) (any, error) {
	d, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	if slices.Contains(r.names, d.GetName()) && len(d.GetManagedFields()) > 0 { // otherwise it is slim already
		r.releases.Store(d.GetName(), apply.ReleaseOf(d))
	}
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	kept := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": d.GetAPIVersion(), "kind": d.GetKind(), "status": map[string]any{"conditions": conditions},
	}}
	kept.SetName(d.GetName())
	kept.SetUID(d.GetUID())
	kept.SetResourceVersion(d.GetResourceVersion())
	kept.SetDeletionTimestamp(d.GetDeletionTimestamp())
	return kept, nil
}

// Start starts the watch, and returns when the definitions are cached.
func (r *Controller) Start(ctx context.Context) error {
	go r.informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "", r.informer.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	return nil
}

// Run reconciles the definitions until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	for _, name := range r.names { // there is no event for a missing one
		r.loop.Enqueue(name)
	}
	return r.loop.Run(ctx)
}

// Whole says whether a kind exists, is served, is not being deleted, and has the objects back that were recreated with it.
// Otherwise, a missing object of it proves nothing.
func (r *Controller) Whole(resource string) bool {
	d := r.get(name(resource))
	return d != nil && d.GetDeletionTimestamp() == nil && kube.HasCondition(d, "Established") && r.isRestored(d)
}

// isRestored says whether the stored objects of a kind were recreated since the kind was.
func (r *Controller) isRestored(d *unstructured.Unstructured) bool {
	if name := d.GetName(); name != storageClusters && name != nfsServers {
		return true
	}
	uid, _ := r.restored.Load(d.GetName())
	return uid == d.GetUID()
}

// Returning says whether StorageClusters are deleted only with their kind, to be recreated.
func (r *Controller) Returning() bool { return r.returning.Load() }

// helmRelease is the release that a kind belongs to, or belonged to when it was last there.
func (r *Controller) helmRelease(name string) *apply.Release {
	release, _ := r.releases.Load(name)
	known, _ := release.(*apply.Release)
	return known
}

func (r *Controller) get(name string) *unstructured.Unstructured {
	return kube.InStore[*unstructured.Unstructured](r.informer.GetStore(), name)
}

// resourceOf is volumes of volumes.holdfast.dev.
func resourceOf(name string) string {
	plural, _, _ := strings.Cut(name, ".")
	return plural
}
