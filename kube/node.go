package kube

import (
	"slices"

	core "k8s.io/api/core/v1"
)

// IsOutOfService says whether an administrator has declared that a node is shut down.
func IsOutOfService(n *core.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t core.Taint) bool { return t.Key == core.TaintNodeOutOfService })
}
