// Package definitions keeps the kinds of Holdfast while it is installed. Deleting a kind deletes its objects, and what is
// deleted cannot be taken back: a kind that is on its way out has to go before it can be made again. So the objects are let
// go, since all that they stand for is on disks, where the agents find it; what only they say, a StorageCluster and its
// NFSServers, is kept in a ConfigMap meanwhile and made again with the kind.
package definitions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
)

// Owner has objects that the garbage collector would remove with the StorageCluster or the NFSServer that they are for.
type Owner interface {
	// OwnedBy returns those that name an owner.
	OwnedBy(types.UID) []*unstructured.Unstructured
	// Disown takes the owners from one.
	Disown(context.Context, *unstructured.Unstructured) error
}

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Namespace  string
	Owners     []Owner
	// First makes the StorageCluster of an installation that has none; nil does not.
	First func(context.Context) error
	// OnlyMissing makes kinds that are missing, and does nothing else, which every replica may do at any time: without the
	// kinds none of them gets as far as to lead.
	OnlyMissing bool
	Log         *slog.Logger // nil discards
}

// Controller sees to the definitions of the kinds.
type Controller struct {
	Config
	loop     *kube.Loop[string]
	informer cache.SharedIndexInformer
	names    []string

	mu        sync.Mutex
	returning bool // the StorageCluster is let go and will be made again
}

var resource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// The kinds of which something is to be done.
var (
	volumes         = name("volumes")
	snapshots       = name("snapshots")
	storageClusters = name("storageclusters")
	nfsServers      = name("nfsservers")
)

func name(resource string) string { return resource + "." + v1.GroupName }

// New checks the configuration.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Dynamic == nil || c.Namespace == "" {
		return nil, errors.New("the definitions need clients and a namespace")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	r := &Controller{Config: c}
	all, err := deploy.Definitions()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		r.names = append(r.names, d.GetName())
	}
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "definitions", Reconcile: r.reconcile, Log: c.Log}); err != nil {
		return nil, err
	}
	r.informer = dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, resource, metav1.NamespaceAll, 0, nil, nil).Informer()
	if err := r.informer.SetTransform(slim); err != nil {
		return nil, err
	}
	return r, r.loop.Watch(r.informer, r.ours)
}

// ours are the names that are looked at when a definition changes.
func (r *Controller) ours(o any) []string {
	if name := o.(*unstructured.Unstructured).GetName(); slices.Contains(r.names, name) {
		return []string{name}
	}
	return nil
}

// slim keeps what says whether a kind is there and served.
func slim(o any) (any, error) {
	d, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
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

// Start begins to watch, and returns when the definitions are known.
func (r *Controller) Start(ctx context.Context) error {
	go r.informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "", r.informer.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	return nil
}

// Run sees to the definitions until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	for _, name := range r.names { // no event tells of one that is missing
		r.loop.Enqueue(name)
	}
	return r.loop.Run(ctx)
}

// Whole says whether a kind is there and not on its way out. That an object of one that is not is missing says nothing.
func (r *Controller) Whole(resource string) bool {
	d := r.get(name(resource))
	return d != nil && d.GetDeletionTimestamp() == nil
}

// Returning says whether StorageClusters go only to be made again.
func (r *Controller) Returning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.returning
}

func (r *Controller) setReturning(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returning = is
}

func (r *Controller) get(name string) *unstructured.Unstructured {
	found, exists, _ := r.informer.GetIndexer().GetByKey(name) // this index has no errors
	if !exists {
		return nil
	}
	return found.(*unstructured.Unstructured)
}

// resourceOf is volumes of volumes.holdfast.dev.
func resourceOf(name string) string {
	plural, _, _ := strings.Cut(name, ".")
	return plural
}
