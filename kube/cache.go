package kube

import (
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Cached returns all objects of a lister.
func Cached[T any](list func(labels.Selector) ([]T, error)) []T {
	found, _ := list(labels.Everything()) // a cache has no errors
	return found
}

// IsOutOfService says whether an administrator has declared that a node is shut down.
func IsOutOfService(n *core.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t core.Taint) bool { return t.Key == core.TaintNodeOutOfService })
}
