package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// Cached returns all objects of a lister.
func Cached[T any](list func(labels.Selector) ([]T, error)) []T {
	return Selected(list, nil)
}

// Selected returns the objects of a lister that have all of the labels.
func Selected[T any](list func(labels.Selector) ([]T, error), has labels.Set) []T {
	found, _ := list(has.AsSelector()) // a cache has no errors
	return found
}

// Deleted is the object that a handler of deletions gets: where the watch has missed the end, the last that it saw.
func Deleted(object any) any {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return object
}

// InStore returns the object of a key, which is NAME or NAMESPACE/NAME; nil if there is none.
func InStore[T any](store cache.Store, key string) T {
	found, _, _ := store.GetByKey(key) // a cache has no errors
	o, _ := found.(T)
	return o
}

// AllIn returns all objects of a store.
func AllIn[T any](store cache.Store) (all []T) {
	for _, o := range store.List() {
		all = append(all, o.(T))
	}
	return all
}

// Heard are the handlers of informers that must have got the existing objects.
type Heard []cache.DoneChecker

// Hear registers a handler.
func Hear[T cache.Object](heard *Heard, informer cache.TypedSharedIndexInformer[T], handler cache.TypedResourceEventHandlerFuncs[T]) error {
	registered, err := informer.AddTypedEventHandler(handler)
	if err == nil {
		*heard = append(*heard, registered.HasSyncedChecker())
	}
	return err
}

// Wait returns when all handlers have got the existing objects, or ctx has ended, with the cause.
func (h Heard) Wait(ctx context.Context) error {
	if !cache.WaitFor(ctx, "", h...) {
		return context.Cause(ctx)
	}
	return nil
}

// OnChange handles an object that is added, changed or deleted.
func OnChange(changed func(object any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed}
}

// Notify wakes the receiver of a channel with room for one, unless it is awake already.
func Notify(receiver chan<- struct{}) {
	select {
	case receiver <- struct{}{}:
	default:
	}
}
