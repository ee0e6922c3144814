package kube

import (
	"slices"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
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

// Untolerated finds a taint that keeps pods with these tolerations off a node. One that is cordoned or not ready has a taint.
func Untolerated(n *core.Node, tolerations []core.Toleration) (core.Taint, bool) {
	keepsOff := func(t *core.Taint) bool {
		return t.Effect == core.TaintEffectNoSchedule || t.Effect == core.TaintEffectNoExecute
	}
	return scheduling.FindMatchingUntoleratedTaint(logr.Discard(), n.Spec.Taints, tolerations, keepsOff, true)
}

// OnNode selects one node by its name. Unlike spec.nodeName, it leaves resources and taints to the scheduler.
func OnNode(name string) core.NodeSelectorTerm {
	return core.NodeSelectorTerm{MatchFields: []core.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: []string{name}},
	}}
}

// NodeAffinity requires a node that one of the terms selects.
func NodeAffinity(terms ...core.NodeSelectorTerm) *core.Affinity {
	return &core.Affinity{NodeAffinity: &core.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{NodeSelectorTerms: terms},
	}}
}
