// Package apply applies desired objects by server-side apply under one field manager and repairs drift. It watches the
// objects that it created, reverts changes and deletions by other clients at once, and prunes objects of its inventory
// that are no longer desired. Unchanged objects cost no request.
package apply

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// FieldManager is the field manager of all applied objects.
const FieldManager = "holdfast-operator"

// The labels that select objects.
const (
	// ManagedByLabel, with the value FieldManager, is on every watched object except those that Helm has installed.
	ManagedByLabel = v1beta1.ManagedByLabel
	// InstanceLabel is on every object that Prune may delete, unless Config.Instance names another label.
	InstanceLabel = v1beta1.InstanceLabel
)

// Config configures a Set.
type Config struct {
	Client dynamic.Interface
	// Resources returns the resources of a group and version, as discovery does.
	Resources func(groupVersion string) (*metav1.APIResourceList, error)
	// Kinds are those that may be applied. Those that the API server does not serve are watched as soon as it does.
	Kinds     []schema.GroupVersionKind
	Name      string // key of this Set in the inventory
	Namespace string // of namespaced objects
	// Everywhere replaces Namespace: objects may be in any namespace. An object with the name of a desired one that was
	// not created by Holdfast then always counts as foreign.
	Everywhere bool
	Instance   string // the label that selects objects for Prune; InstanceLabel if empty
	// InventoryNamespace is the namespace of the ConfigMap InventoryName; Namespace if empty.
	InventoryNamespace string
	// Stranger, if not nil, is called once for each object that has our labels and was not created here, such as a copy of
	// one that was; again if it fails.
	Stranger func(context.Context, *unstructured.Unstructured) error
	Log      *slog.Logger
}

// Ref identifies an object.
type Ref struct {
	schema.GroupKind
	types.NamespacedName
}

// RefOf returns the Ref of an object.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{o.GroupVersionKind().GroupKind(), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

// RefTo returns the Ref of a name.
func RefTo(group, kind, namespace, name string) Ref {
	return Ref{schema.GroupKind{Group: group, Kind: kind}, types.NamespacedName{Namespace: namespace, Name: name}}
}

// Typed returns an object of the cache as a Go type; nil for none, or one that is not of that type.
func Typed[T any](o *unstructured.Unstructured) *T {
	typed := new(T)
	if o == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) != nil {
		return nil
	}
	return typed
}

func (r Ref) String() string { return r.Kind + " " + r.Name }

// Failure is why an object could not be applied.
type Failure struct { //nolint:errname // one of Outcome.Failures; that it is an error too is by the way
	Ref
	Err error
}

func (f Failure) Error() string { return f.String() + ": " + f.Err.Error() }
func (f Failure) Unwrap() error { return f.Err }

// Set manages a set of objects. Its methods may be called concurrently; if two apply the same object, the last one
// wins.
type Set struct {
	Config

	mu        sync.Mutex
	watches   map[schema.GroupKind]*watch
	records   map[Ref]*record
	applying  map[Ref]*unstructured.Unstructured // last state of objects that were deleted during their apply
	releases  map[Ref]*Release                   // of objects that Helm has applied
	absent    sync.Map                           // by Ref: when Mark found that an object does not exist
	forbidden map[schema.GroupKind]bool          // kinds that we have no right to list
	strangers map[types.UID]bool                 // UIDs that were reported
	listeners []func(Ref)
	inventory *inventory
}

// New validates the configuration. Start must be called next.
func New(c Config) (*Set, error) {
	c.InventoryNamespace = cmp.Or(c.InventoryNamespace, c.Namespace)
	if c.Client == nil || c.Resources == nil || c.Name == "" || (c.Namespace == "") != c.Everywhere || c.InventoryNamespace == "" {
		return nil, errors.New("a set of owned objects needs a client, discovery, a name, a namespace or all of them, and one for its inventory")
	}
	c.Instance = cmp.Or(c.Instance, InstanceLabel)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Set{
		Config: c, watches: map[schema.GroupKind]*watch{}, records: map[Ref]*record{}, applying: map[Ref]*unstructured.Unstructured{},
		releases: map[Ref]*Release{}, forbidden: map[schema.GroupKind]bool{}, strangers: map[types.UID]bool{}, inventory: newInventory(&c),
	}, nil
}

// Listen registers a function that is called when an object of this Set is added, changed or deleted, and, with a Ref
// without a name, when the API server starts or stops to serve a kind. It must not block. Call Listen before Start.
func (s *Set) Listen(changed func(Ref)) { s.listeners = append(s.listeners, changed) }

func (s *Set) notify(r Ref) {
	for _, changed := range s.listeners {
		changed(r)
	}
}

// Has returns whether the API server serves one of the Kinds.
func (s *Set) Has(kind schema.GroupKind) bool { return s.watch(kind) != nil }

func (s *Set) watch(kind schema.GroupKind) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[kind]
}

// Get returns an object from the cache, or nil. It must not be modified.
func (s *Set) Get(r Ref) *unstructured.Unstructured {
	w := s.watch(r.GroupKind)
	if w == nil {
		return nil
	}
	cached := w.get(r.NamespacedName)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.records[r]; known != nil && (cached == nil || older(cached, known.result)) {
		return known.result
	}
	return cached
}

// List returns all objects with the instance label that this Set created, ordered by kind and name. They must not be
// modified.
func (s *Set) List() []*unstructured.Unstructured {
	return slices.DeleteFunc(s.labelled(), func(o *unstructured.Unstructured) bool { return !s.inventory.has(o) })
}

// labelled returns all objects with the instance label, regardless of their creator.
func (s *Set) labelled() []*unstructured.Unstructured {
	return slices.DeleteFunc(s.watched(), func(o *unstructured.Unstructured) bool { return o.GetLabels()[s.Instance] == "" })
}

func (s *Set) watched() (all []*unstructured.Unstructured) {
	s.mu.Lock()
	watches := slices.Collect(maps.Values(s.watches))
	s.mu.Unlock()
	for _, w := range watches {
		all = append(all, w.list()...)
	}
	slices.SortFunc(all, compareRefs)
	return all
}
