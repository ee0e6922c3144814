package kube

import (
	"slices"

	core "k8s.io/api/core/v1"
)

// IsReady says whether a node is ready for pods.
func IsReady(n *core.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c core.NodeCondition) bool {
		return c.Type == core.NodeReady && c.Status == core.ConditionTrue
	})
}

// IsOutOfService says whether an administrator has declared that a node is shut down.
func IsOutOfService(n *core.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t core.Taint) bool { return t.Key == core.TaintNodeOutOfService })
}
