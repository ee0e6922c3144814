package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Written remembers the last writes to the objects of one kind, so that no decision is based on a cache that has not
// caught up. The zero value remembers nothing.
type Written[T metav1.Object] struct {
	mu      sync.Mutex
	written map[string]T
}

// Wrote remembers an object as the API server returned it.
func (o *Written[T]) Wrote(object T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[string]T{}
	}
	o.written[keyOf(object)] = object
}

// Newest returns what is newer: the object as a cache has it, or as it was written. It must not be changed.
func (o *Written[T]) Newest(cached T) T {
	o.mu.Lock()
	defer o.mu.Unlock()
	written, ok := o.written[keyOf(cached)]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), cached.GetResourceVersion())
	if written.GetUID() == cached.GetUID() && err == nil && order > 0 {
		return written
	}
	delete(o.written, keyOf(cached))
	return cached
}

// Forget drops an object that is gone: NAME, or NAMESPACE/NAME where it was in a namespace.
func (o *Written[T]) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.written, name)
}

func keyOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
