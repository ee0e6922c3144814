package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
)

type watch struct {
	resource   schema.GroupVersionResource
	namespaced bool
	index      cache.Indexer
	stop       context.CancelFunc
}

func (w *watch) client(c dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if w.namespaced {
		return c.Resource(w.resource).Namespace(namespace)
	}
	return c.Resource(w.resource)
}

func (w *watch) get(name types.NamespacedName) *unstructured.Unstructured {
	key := name.Name
	if name.Namespace != "" {
		key = name.String()
	}
	return kube.InStore[*unstructured.Unstructured](w.index, key)
}

func (w *watch) list() []*unstructured.Unstructured {
	return kube.AllIn[*unstructured.Unstructured](w.index)
}

// The retry interval while the API server does not serve a kind yet, or does not answer.
const (
	retryFirst = 200 * time.Millisecond
	retryLast  = 30 * time.Second
)

// Start watches until ctx ends. It returns after the initial list of all kinds.
func (s *Set) Start(ctx context.Context) error {
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		err := s.watchServedKinds(ctx)
		if err == nil {
			break
		}
		s.Log.Warn("the kinds of the API server could not be listed; retrying", "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	err := s.inventory.load(ctx, func() []*unstructured.Unstructured {
		return slices.DeleteFunc(s.watched(), func(o *unstructured.Unstructured) bool { return !slices.ContainsFunc(o.GetManagedFields(), isOurs) })
	})
	if err != nil {
		return err
	}
	return s.watchDefinitions(ctx)
}

// watchServedKinds starts a watch of each of the Kinds that the API server serves by now.
func (s *Set) watchServedKinds(ctx context.Context) error {
	known := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, kind := range s.Kinds {
		if s.Has(kind.GroupKind()) {
			continue
		}
		version := kind.GroupVersion()
		if known[version] == nil {
			list, err := s.Resources(version.String())
			switch {
			case apierrors.IsNotFound(err):
				list = &metav1.APIResourceList{}
			case err != nil:
				return fmt.Errorf("the kinds of %s: %w", version, err)
			}
			known[version] = list
		}
		for _, resource := range known[version].APIResources {
			if resource.Kind == kind.Kind && !slices.Contains([]byte(resource.Name), '/') {
				if err := s.startWatch(ctx, kind, resource); err != nil && !s.denied(kind.GroupKind(), err) {
					return err
				}
			}
		}
	}
	return nil
}

// errForbidden means that this process may not list a kind: the image was upgraded without the RBAC rules of its
// release.
var errForbidden = errors.New("forbidden")

// startWatch watches one kind, and returns after its initial list.
func (s *Set) startWatch(ctx context.Context, kind schema.GroupVersionKind, resource metav1.APIResource) error {
	ctx, end := context.WithCancelCause(ctx)
	stop := func() { end(nil) }
	w := &watch{resource: kind.GroupVersion().WithResource(resource.Name), namespaced: resource.Namespaced, stop: stop}
	namespace := ""
	if w.namespaced {
		namespace = s.Namespace
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(s.Client, w.resource, namespace, 0, nil, func(o *metav1.ListOptions) {
		o.LabelSelector = s.selector()
	}).Informer()
	w.index = informer.GetIndexer()
	if err := stopIfForbidden(informer, end); err != nil {
		stop()
		return err
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.notify(RefOf(o.(*unstructured.Unstructured))) },
		UpdateFunc: func(_, o any) { s.notify(RefOf(o.(*unstructured.Unstructured))) },
		DeleteFunc: func(o any) { s.handleDelete(kind.GroupKind(), o) },
	})
	if err != nil {
		stop()
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
		defer stop()
		return context.Cause(ctx)
	}
	s.mu.Lock()
	s.watches[kind.GroupKind()] = w
	s.mu.Unlock()
	s.notify(Ref{})
	return nil
}

// stopIfForbidden stops an informer that may not list its kind and would retry forever.
func stopIfForbidden(informer cache.SharedIndexInformer, end context.CancelCauseFunc) error {
	return informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) && !informer.HasSynced() {
			end(fmt.Errorf("%w: %w", errForbidden, err))
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
}

// denied returns whether a kind is skipped for lack of rights. It is retried later.
func (s *Set) denied(kind schema.GroupKind, err error) bool {
	if !errors.Is(err, errForbidden) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.forbidden[kind] {
		s.Log.Warn("the rights for a kind are missing, so it is skipped: apply the manifest of this release", "kind", kind.Kind, "error", err)
	}
	s.forbidden[kind] = true
	return true
}

// awaits returns whether a kind is to be watched and is not.
func (s *Set) awaits(defined map[schema.GroupKind]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.Kinds, func(kind schema.GroupVersionKind) bool {
		k := kind.GroupKind()
		return s.watches[k] == nil && (defined[k] || s.forbidden[k])
	})
}

// handleDelete handles an object that was deleted, or that lost the label.
func (s *Set) handleDelete(kind schema.GroupKind, o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		namespace, name, _ := cache.SplitMetaNamespaceKey(unknown.Key) // the key was made by the same package
		r := Ref{kind, types.NamespacedName{Namespace: namespace, Name: name}}
		s.forget(r, nil)
		s.notify(r)
		return
	}
	last := o.(*unstructured.Unstructured)
	s.forget(RefOf(last), last)
	s.notify(RefOf(last))
}

// watchDefinitions starts watches of kinds that are added to the API server, and stops those of kinds that are removed.
func (s *Set) watchDefinitions(ctx context.Context) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(s.Client, kube.Definitions, metav1.NamespaceAll, 0, nil, nil).Informer()
	if err := informer.SetTransform(slimDefinition); err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	registered, err := informer.AddEventHandler(kube.OnChange(func(any) { kube.Notify(changed) }))
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	kube.Notify(changed) // kinds that were forbidden are tried again
	go s.follow(ctx, changed, informer.GetIndexer())
	return nil
}

// slimDefinition keeps the fields that say which kind it is and whether it is served.
func slimDefinition(o any) (any, error) {
	d, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	slim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": d.GetAPIVersion(), "kind": d.GetKind(),
		"spec": map[string]any{"group": group, "kind": kind}, "status": map[string]any{"conditions": conditions},
	}}
	slim.SetName(d.GetName())
	slim.SetUID(d.GetUID())
	slim.SetResourceVersion(d.GetResourceVersion())
	return slim, nil
}

// follow starts and stops watches whenever a CustomResourceDefinition changes. A defined kind may not be served yet.
func (s *Set) follow(ctx context.Context, changed <-chan struct{}, definitions cache.Indexer) {
	again, custom := make(<-chan time.Time), map[schema.GroupKind]bool{}
	for wait := retryFirst; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			wait = retryFirst
		case <-again:
			wait = min(2*wait, retryLast)
		}
		again = nil
		if !s.followOnce(ctx, custom, definedKinds(definitions)) {
			again = time.After(wait)
		}
	}
}

// definedKinds returns the kinds whose CustomResourceDefinition is established and not being deleted.
func definedKinds(definitions cache.Indexer) map[schema.GroupKind]bool {
	all := map[schema.GroupKind]bool{}
	for _, d := range definitions.List() {
		d := d.(*unstructured.Unstructured)
		group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(d.Object, "spec", "kind")
		all[schema.GroupKind{Group: group, Kind: kind}] = kube.HasCondition(d, "Established") && !kube.HasCondition(d, "Terminating")
	}
	return all
}

// followOnce returns false if a defined kind is not served yet. It records in custom which kinds were ever defined.
func (s *Set) followOnce(ctx context.Context, custom, defined map[schema.GroupKind]bool) (done bool) {
	for _, kind := range s.Kinds {
		is, known := defined[kind.GroupKind()]
		custom[kind.GroupKind()] = custom[kind.GroupKind()] || known
		if s.Has(kind.GroupKind()) && custom[kind.GroupKind()] && !is {
			s.stopWatch(kind.GroupKind())
		}
	}
	if !s.awaits(defined) {
		return true
	}
	if err := s.watchServedKinds(ctx); err != nil {
		s.Log.Warn("a new kind could not be watched; retrying", "error", err)
	}
	return !s.awaits(defined)
}

func (s *Set) stopWatch(kind schema.GroupKind) {
	s.mu.Lock()
	s.watches[kind].stop()
	delete(s.watches, kind)
	for r := range s.records {
		if r.GroupKind == kind {
			delete(s.records, r)
		}
	}
	s.mu.Unlock()
	s.notify(Ref{})
}

func older(a, b *unstructured.Unstructured) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

func compareRefs(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
