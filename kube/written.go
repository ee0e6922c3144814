package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Written remembers the last write to each object of a kind, so that no decision is based on a stale cache. Its zero
// value is empty.
type Written[T metav1.Object] struct {
	written sync.Map // objects, by key
}

// Wrote remembers an object as the API server returned it.
func (o *Written[T]) Wrote(object T) { o.written.Store(keyOf(object), object) }

// Newest returns the newer of the cached object and the last written one. It must not be modified.
func (o *Written[T]) Newest(cached T) T {
	last, ok := o.written.Load(keyOf(cached))
	if !ok {
		return cached
	}
	written := last.(T)
	order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), cached.GetResourceVersion())
	if written.GetUID() == cached.GetUID() && err == nil && order > 0 {
		return written
	}
	o.written.CompareAndDelete(keyOf(cached), last)
	return cached
}

// Forget drops a deleted object: NAME, or NAMESPACE/NAME of a namespaced kind.
func (o *Written[T]) Forget(name string) { o.written.Delete(name) }

func keyOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }
