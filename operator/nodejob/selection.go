package nodejob

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// selection is the nodes that a job runs on, and why others are left out.
type selection struct {
	nodes   []string // in the order of their names
	left    int      // not selected
	tainted []string // selected, with a taint that is not tolerated
}

// selectNodes evaluates the job's terms as the scheduler does, among the nodes of Linux. A node that is cordoned or not ready
// has a taint.
func selectNodes(spec *v1beta1.NodeJobSpec, nodes []*core.Node) (selection, error) {
	var s selection
	byTerms := func(*core.Node) bool { return true }
	if len(spec.NodeSelectorTerms) > 0 {
		terms, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: spec.NodeSelectorTerms})
		if err != nil {
			return s, fmt.Errorf("nodeSelectorTerms: %.500s", err.Error()) // the error quotes the invalid value
		}
		byTerms = terms.Match
	}
	for _, n := range nodes {
		if os := n.Labels[core.LabelOSStable]; os != "" && os != "linux" || !byTerms(n) {
			s.left++
			continue
		}
		if taint, found := kube.Untolerated(n, spec.Tolerations); found {
			s.tainted = append(s.tainted, fmt.Sprintf("%s has the taint %s", n.Name, taint.ToString()))
			continue
		}
		s.nodes = append(s.nodes, n.Name)
	}
	slices.Sort(s.nodes)
	slices.Sort(s.tainted)
	return s, nil
}

func (s selection) none() string {
	var reasons []string
	if s.left > 0 {
		reasons = append(reasons, fmt.Sprintf("%d not of Linux, or not chosen by nodeSelectorTerms", s.left))
	}
	if len(s.tainted) > 0 {
		reasons = append(reasons, "without a toleration: "+few(s.tainted))
	}
	if len(reasons) == 0 {
		return "no node is selected: the cluster has none"
	}
	return "no node is selected: " + strings.Join(reasons, "; ")
}

// few names the first ones and counts the rest.
func few(all []string) string { return kube.Few(all, 3, ", ", " and %d more") }
