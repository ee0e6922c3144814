// Package apply keeps objects in the API server as they are wanted. It applies them under one field manager, watches
// all that it has made, so that what others change or delete is put right at once, and removes what is no longer
// wanted of what its inventory says that it has made. What has not changed costs no request.
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
	// ManagedByLabel, with the value FieldManager, is on every object that is watched.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// InstanceLabel is on every object that is pruned when it is not wanted, unless the Set has a label of its own for that.
	InstanceLabel = "app.kubernetes.io/instance"
)

// Config is what a Set needs.
type Config struct {
	Client dynamic.Interface
	// Resources asks the API server for the resources of a group and version, such as discovery does.
	Resources func(groupVersion string) (*metav1.APIResourceList, error)
	// Kinds that may be wanted. Those that the API server does not know are taken up when it learns them.
	Kinds     []schema.GroupVersionKind
	Name      string // of the set, among those of the same inventory
	Namespace string // of what is in a namespace
	// Everywhere is instead of Namespace: objects are in any. What has the name of a wanted one and was not made by
	// Holdfast is somebody's then, whatever its kind.
	Everywhere bool
	Instance   string // the label that stands for InstanceLabel; that if empty
	// InventoryNamespace has the ConfigMap InventoryName; Namespace if empty.
	InventoryNamespace string
	// Stranger, if there is one, is told of an object that has our labels and was not made here, such as a copy of one that
	// was. It is told once, or until it succeeds.
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

// Failure is an object that is not as it is wanted, and why.
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
	absent    map[Ref]time.Time                  // when what was to be marked was not there
	forbidden map[schema.GroupKind]bool          // once: the API server did not let them be read
	strangers map[types.UID]bool                 // that were told of
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
		absent: map[Ref]time.Time{}, forbidden: map[schema.GroupKind]bool{}, strangers: map[types.UID]bool{}, inventory: newInventory(&c),
	}, nil
}

// Listen makes changed run whenever an owned object comes, changes or goes, and, with a Ref without a name, when the
// API server has learned or forgotten a kind. It must return at once. It is called before Start.
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

// labelled are the objects with the label of instances, whoever made them.
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
