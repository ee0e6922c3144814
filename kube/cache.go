package kube

import (
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
