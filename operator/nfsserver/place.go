package nfsserver

import (
	"cmp"
	"slices"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// stays is the node that a server with a directory of a node has to be on, "" for others: its data is there. It is
// settled before the pod is made, which would else have to be made anew to be kept there. The server may leave it when its
// terms do not choose it any more.
func (r *Controller) stays(s *v1.NFSServer) string {
	if s.Spec.Storage == nil || s.Spec.Storage.HostPath == "" {
		return ""
	}
	nodes, _ := r.nodes.List(labels.Everything()) // a cache has no errors
	has := s.Status.Node
	for _, p := range r.podsOf(s) {
		has = cmp.Or(has, p.Spec.NodeName)
	}
	return settle(s, has, nodes)
}

// settle keeps the node that a server has, as long as its terms choose that. Otherwise it is the first by name that they
// choose, where the pod would run if it were now.
func settle(s *v1.NFSServer, has string, nodes []*core.Node) string {
	terms, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: s.Spec.NodeSelectorTerms})
	if err != nil {
		return has
	}
	there := slices.ContainsFunc(nodes, func(n *core.Node) bool { return n.Name == has })
	if has != "" && !there {
		return has // it may come back, and its data with it
	}
	var chosen []*core.Node
	for _, n := range nodes {
		switch {
		case !terms.Match(n):
		case n.Name == has:
			return has
		default:
			chosen = append(chosen, n)
		}
	}
	if len(chosen) == 0 {
		return ""
	}
	return slices.MinFunc(chosen, func(a, b *core.Node) int {
		if takes := takesPods(a, s.Spec.Tolerations); takes != takesPods(b, s.Spec.Tolerations) {
			if takes {
				return -1
			}
			return 1
		}
		return compare(a.Name, b.Name)
	}).Name
}

// takesPods says whether no taint keeps pods with these tolerations off. A node that is cordoned or not ready has one.
func takesPods(n *core.Node, tolerations []core.Toleration) bool {
	_, found := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), n.Spec.Taints, tolerations, func(t *core.Taint) bool {
		return t.Effect == core.TaintEffectNoSchedule || t.Effect == core.TaintEffectNoExecute
	}, true)
	return !found
}
