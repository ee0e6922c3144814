package nfsserver

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func node(name, disk string, taints ...core.Taint) *core.Node {
	return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": disk}}, Spec: core.NodeSpec{Taints: taints}}
}

func TestAServerStaysOnTheNodeThatHasItsDirectory(t *testing.T) {
	cordoned := core.Taint{Key: core.TaintNodeUnschedulable, Effect: core.TaintEffectNoSchedule}
	a, b, c := node("a", "slow"), node("b", "fast"), node("c", "fast")
	fast := server(func(s *v1.NFSServerSpec) {
		s.Storage = &v1.NFSStorage{HostPath: "/srv"}
		s.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: []string{"fast"}}}}}
	})
	tolerant := fast.DeepCopy()
	tolerant.Spec.Tolerations = []core.Toleration{{Operator: core.TolerationOpExists}}
	for name, test := range map[string]struct {
		server *v1.NFSServer
		has    string
		nodes  []*core.Node
		want   string
	}{
		"the first that is chosen":           {fast, "", []*core.Node{c, b, a}, "b"},
		"one that takes pods":                {fast, "", []*core.Node{node("b", "fast", cordoned), c}, "c"},
		"one whose taint it tolerates":       {tolerant, "", []*core.Node{node("b", "fast", cordoned), c}, "b"},
		"none takes pods":                    {fast, "", []*core.Node{node("b", "fast", cordoned)}, "b"},
		"the one it has":                     {fast, "c", []*core.Node{a, b, c}, "c"},
		"the one it has, which is cordoned":  {fast, "c", []*core.Node{b, node("c", "fast", cordoned)}, "c"},
		"the one it has, which is gone":      {fast, "c", []*core.Node{a, b}, "c"},
		"not one that is not chosen anymore": {fast, "a", []*core.Node{a, c, b}, "b"},
		"none is chosen":                     {fast, "", []*core.Node{a}, ""},
		"none is there":                      {fast, "", nil, ""},
	} {
		if got := settle(test.server, test.has, test.nodes); got != test.want {
			t.Errorf("%s: it is %q, want %q", name, got, test.want)
		}
	}
}
