package nodejob

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func term(key string, op core.NodeSelectorOperator, values ...string) core.NodeSelectorTerm {
	return core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// otherSystem is a node whose pods need images of their own.
func otherSystem(name string) *core.Node {
	n := node(name)
	n.Labels[core.LabelOSStable] = name
	return n
}

func TestSelection_MatchesNodesAsTheSchedulerDoes(t *testing.T) {
	const host = "kubernetes.io/hostname"
	noSchedule := core.Taint{Key: "only", Value: "db", Effect: core.TaintEffectNoSchedule}
	cordon := core.Taint{Key: "node.kubernetes.io/unschedulable", Effect: core.TaintEffectNoSchedule}
	nodes := []*core.Node{
		node("c"), node("a"), node("b", core.Taint{Key: "soft", Effect: core.TaintEffectPreferNoSchedule}),
		otherSystem("windows"), node("tainted", noSchedule), node("cordoned", cordon), node("leaving", core.Taint{Key: "out", Effect: core.TaintEffectNoExecute}),
	}
	everything := []core.Toleration{{Operator: core.TolerationOpExists}}
	for name, c := range map[string]struct {
		spec v1beta1.NodeJobSpec
		want string
	}{
		"all that have no taint":        {v1beta1.NodeJobSpec{}, "a b c"},
		"all":                           {v1beta1.NodeJobSpec{Tolerations: everything}, "a b c cordoned leaving tainted"},
		"a taint of another value":      {v1beta1.NodeJobSpec{Tolerations: []core.Toleration{{Key: "only", Value: "web"}}}, "a b c"},
		"a taint of this value":         {v1beta1.NodeJobSpec{Tolerations: []core.Toleration{{Key: "only", Value: "db"}}}, "a b c tainted"},
		"by labels":                     {v1beta1.NodeJobSpec{NodeSelectorTerms: []core.NodeSelectorTerm{term(host, "In", "b")}}, "b"},
		"by one of two terms":           {v1beta1.NodeJobSpec{NodeSelectorTerms: []core.NodeSelectorTerm{term(host, "In", "a", "x"), term(host, "In", "c")}}, "a c"},
		"by what is not there":          {v1beta1.NodeJobSpec{NodeSelectorTerms: []core.NodeSelectorTerm{term("ssd", "DoesNotExist")}}, "a b c"},
		"by a term without expressions": {v1beta1.NodeJobSpec{NodeSelectorTerms: []core.NodeSelectorTerm{{}}}, ""},
		"by name": {v1beta1.NodeJobSpec{NodeSelectorTerms: []core.NodeSelectorTerm{{
			MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"c"}}},
		}}}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := selectNodes(&c.spec, nodes)
			if err != nil || !slices.Equal(s.nodes, strings.Fields(c.want)) {
				t.Errorf("got %v, %v, want %s", s.nodes, err, c.want)
			}
		})
	}
}

func TestSelection_WithoutNodesReportsTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  []string
		change func(*v1beta1.NodeJobSpec, []*core.Node)
		reason string
		want   string
	}{
		"no node at all": {nil, func(*v1beta1.NodeJobSpec, []*core.Node) {}, "NoNodes", "the cluster has none"},
		"none chosen": {[]string{"a", "b"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) {
			s.NodeSelectorTerms = []core.NodeSelectorTerm{term("no", "In", "such")}
		}, "NoNodes", "2 not of Linux, or not chosen by nodeSelectorTerms"},
		"all tainted": {[]string{"a"}, func(_ *v1beta1.NodeJobSpec, nodes []*core.Node) {
			nodes[0].Spec.Taints = []core.Taint{{Key: "only", Value: "db", Effect: core.TaintEffectNoSchedule}}
		}, "NoNodes", "without a toleration: a has the taint only=db:NoSchedule"},
		"a wrong term": {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) {
			s.NodeSelectorTerms = []core.NodeSelectorTerm{term("x", "Gt", "many")}
		}, "InvalidSelector", "nodeSelectorTerms:"},
		"an unknown task":           {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) { s.Task = "dance" }, "InvalidTask", `"dance"`},
		"a cleanup of no pool":      {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) { s.Task = v1beta1.CleanupTask }, "InvalidTask", "needs pool"},
		"a cleanup of another path": {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) { s.Task, s.Pool = v1beta1.CleanupTask, "../etc" }, "InvalidTask", "directory of pool ../etc is not known"},
		"a pull of nothing":         {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) { s.Task = v1beta1.PullTask }, "InvalidTask", "needs taskImage"},
		"a timeout that is none": {[]string{"a"}, func(s *v1beta1.NodeJobSpec, _ []*core.Node) {
			s.Timeout = new(v1beta1.Duration("a day"))
		}, "InvalidTimeout", `spec.timeout: "a day"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, c.nodes...)
			c.change(&s.job.Spec, s.nodes)
			s.step().wantJob(v1beta1.JobFailed, "", c.want)
			if reason := s.job.Status.Conditions[0].Reason; reason != c.reason {
				t.Errorf("the reason is %s, want %s", reason, c.reason)
			}
		})
	}
}

func TestSelection_OfManyNodesIsAbbreviated(t *testing.T) {
	if got := few([]string{"a", "b", "c", "d", "e"}); got != "a, b, c and 2 more" {
		t.Errorf("got %s", got)
	}
}
