// Package apply applies the desired objects and repairs drift. It applies them under one field manager, watches all
// objects that it has created, so that changes and deletions by others are undone at once, and prunes objects of its
// inventory that are no longer desired. Unchanged objects cost no request.
package apply

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// FieldManager is the name under which everything is applied.
const FieldManager = "holdfast-operator"

// The labels by which objects are found.
const (
	// ManagedByLabel, with the value FieldManager, is on every object that is watched, but for those that Helm has installed.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// InstanceLabel is on every object that is pruned when it is not desired, unless the Set has a label of its own for
	// that.
	InstanceLabel = "app.kubernetes.io/instance"
)

// Config is what a Set needs.
type Config struct {
	Client dynamic.Interface
	// Resources asks the API server for the resources of a group and version, such as discovery does.
	Resources func(groupVersion string) (*metav1.APIResourceList, error)
	// Kinds that may be applied. Those that the API server does not know are watched once it does.
	Kinds     []schema.GroupVersionKind
	Name      string // of the set, among those of the same inventory
	Namespace string // of what is in a namespace
	// Everywhere replaces Namespace: objects are in any. An object of any kind that has the name of a desired one and
	// was not created by Holdfast then belongs to others.
	Everywhere bool
	Instance   string // the label that stands for InstanceLabel; that if empty
	// InventoryNamespace has the ConfigMap InventoryName; Namespace if empty.
	InventoryNamespace string
	// Stranger, if not nil, is called with an object that has our labels and was not created here, such as a copy of
	// one that was. It is called until it succeeds once.
	Stranger func(context.Context, *unstructured.Unstructured) error
	Log      *slog.Logger
}

// Ref names an object.
type Ref struct {
	schema.GroupKind
	types.NamespacedName
}

// RefOf an object.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{o.GroupVersionKind().GroupKind(), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

func (r Ref) String() string { return r.Kind + " " + r.Name }

// Failure is an object that could not be applied, and why.
type Failure struct { //nolint:errname // one of Outcome.Failures; that it is an error too is by the way
	Ref
	Err error
}

func (f Failure) Error() string { return f.String() + ": " + f.Err.Error() }
func (f Failure) Unwrap() error { return f.Err }

// Set is the objects. All methods may be called from several goroutines; of two that apply the same object the last wins.
type Set struct {
	Config

	mu        sync.Mutex
	watches   map[schema.GroupKind]*watch
	records   map[Ref]*record
	applying  map[Ref]*unstructured.Unstructured // the last that was seen of what has gone since its application began
	releases  map[Ref]*Release                   // of the objects that Helm has applied
	absent    map[Ref]time.Time                  // when what was to be marked was not there
	forbidden map[schema.GroupKind]bool          // once: the API server did not let them be read
	strangers map[types.UID]bool                 // that were reported
	listeners []func(Ref)
	inventory *inventory
}

// New checks the configuration. Start must be called next.
func New(c Config) (*Set, error) {
	c.InventoryNamespace = cmp.Or(c.InventoryNamespace, c.Namespace)
	if c.Client == nil || c.Resources == nil || c.Name == "" || (c.Namespace == "") != c.Everywhere || c.InventoryNamespace == "" {
		return nil, errors.New("a set of owned objects needs a client, discovery, a name, a namespace or all of them, and one for its inventory")
	}
	c.Instance = cmp.Or(c.Instance, InstanceLabel)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{
		Config: c, watches: map[schema.GroupKind]*watch{}, records: map[Ref]*record{}, applying: map[Ref]*unstructured.Unstructured{},
		releases: map[Ref]*Release{}, absent: map[Ref]time.Time{}, forbidden: map[schema.GroupKind]bool{}, strangers: map[types.UID]bool{}, inventory: newInventory(&c),
	}, nil
}

// Listen registers changed, which runs whenever an owned object is added, changed or deleted, and, with a Ref without a
// name, when the API server has learned or forgotten a kind. It must return at once. It is called before Start.
func (s *Set) Listen(changed func(Ref)) { s.listeners = append(s.listeners, changed) }

func (s *Set) tell(r Ref) {
	for _, changed := range s.listeners {
		changed(r)
	}
}

// Has says whether the API server knows one of the Kinds.
func (s *Set) Has(kind schema.GroupKind) bool { return s.watch(kind) != nil }

func (s *Set) watch(kind schema.GroupKind) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[kind]
}

// Get returns an owned object as it was last heard of, nil if there is none. It must not be changed.
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

// List returns all objects with the label of instances that were made here, ordered by kind and name. They must not be
// changed.
func (s *Set) List() []*unstructured.Unstructured {
	return slices.DeleteFunc(s.labelled(), func(o *unstructured.Unstructured) bool { return !s.inventory.has(o) })
}

// labelled are the objects with the label of instances, regardless of their creator.
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
