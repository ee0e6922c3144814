package render

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func testNode(name string, labels ...string) *core.Node {
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	return node
}

// term wants KEY OPERATOR VALUES of each expression.
func term(expressions ...string) core.NodeSelectorTerm {
	var all core.NodeSelectorTerm
	for _, e := range expressions {
		words := strings.Fields(e)
		all.MatchExpressions = append(all.MatchExpressions, core.NodeSelectorRequirement{Key: words[0], Operator: core.NodeSelectorOperator(words[1]), Values: words[2:]})
	}
	return all
}

func named(name string) core.NodeSelectorTerm {
	return core.NodeSelectorTerm{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{name}}}}
}

func TestPools_TermsAreReadAsTheSchedulerReadsThem(t *testing.T) {
	node := testNode("a", "zone=west", "disks=4", "ssd=")
	for _, test := range []struct {
		terms []core.NodeSelectorTerm
		want  bool
	}{
		{nil, true},
		{[]core.NodeSelectorTerm{{}}, false}, // an empty term matches nothing
		{[]core.NodeSelectorTerm{term("zone In east west")}, true},
		{[]core.NodeSelectorTerm{term("zone NotIn east west")}, false},
		{[]core.NodeSelectorTerm{term("rack NotIn 1")}, true},
		{[]core.NodeSelectorTerm{term("ssd Exists")}, true},
		{[]core.NodeSelectorTerm{term("ssd DoesNotExist")}, false},
		{[]core.NodeSelectorTerm{term("disks Gt 3")}, true},
		{[]core.NodeSelectorTerm{term("disks Lt 4")}, false},
		{[]core.NodeSelectorTerm{term("zone In west", "disks Gt 4")}, false}, // within a term all must match
		{[]core.NodeSelectorTerm{term("zone In east"), term("ssd Exists")}, true},
		{[]core.NodeSelectorTerm{named("b"), named("a")}, true},
		{[]core.NodeSelectorTerm{named("b")}, false},
	} {
		c := ask(func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = test.terms }).Cluster
		if got, err := Stores(c, node); err != nil || got != test.want {
			t.Errorf("%+v: %v %v", test.terms, got, err)
		}
	}
}

func TestPools_NodeIsSelectedWhateverItsState(t *testing.T) {
	node := testNode("a")
	node.Spec.Unschedulable = true
	node.Spec.Taints = []core.Taint{{Key: "node.kubernetes.io/disk-pressure", Effect: core.TaintEffectNoExecute}}
	node.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionUnknown}}
	if stores, err := Stores(ask(nil).Cluster, node); err != nil || !stores {
		t.Errorf("%v %v", stores, err)
	}
}

func TestPools_NodeOfAnotherOperatingSystemHasNone(t *testing.T) {
	node := testNode("a", "kubernetes.io/os=windows")
	c := ask(nil).Cluster
	if stores, err := Stores(c, node); err != nil || stores {
		t.Errorf("%v %v", stores, err)
	}
	if pools, err := NodePools(c, node); err != nil || len(pools) > 0 {
		t.Errorf("%v %v", pools, err)
	}
}

func TestPools_NodeHasThoseThatSelectIt(t *testing.T) {
	c := ask(func(s *v1beta1.StorageClusterSpec) {
		s.NodeSelectorTerms = []core.NodeSelectorTerm{term("zone Exists")}
		s.Pools = []v1beta1.PoolSpec{
			{Name: "all"},
			{Name: "west", Path: "/srv", NodeSelectorTerms: []core.NodeSelectorTerm{term("zone In west")}},
			{Name: "disk", Devices: &v1beta1.DeviceSelector{Model: "x"}, NodeSelectorTerms: []core.NodeSelectorTerm{named("b"), named("c")}},
		}
	}).Cluster
	for _, test := range []struct {
		node *core.Node
		want []string
	}{
		{testNode("a", "zone=west"), []string{"all /var/lib/holdfast/pools/all", "west /srv"}},
		{testNode("b", "zone=east"), []string{"all /var/lib/holdfast/pools/all", "disk "}},
		{testNode("c"), nil}, // it does not store
	} {
		pools := check.Got(NodePools(c, test.node))(t)
		var got []string
		for _, pool := range pools {
			got = append(got, pool.Name+" "+pool.Path)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s has %v", test.node.Name, got)
		}
	}
	if c.Spec.Pools[0].Path != "" {
		t.Error("the default was written into the spec")
	}
}

func TestPools_DefaultIsOneOnEveryNode(t *testing.T) {
	pools, err := NodePools(ask(nil).Cluster, testNode("a"))
	if err != nil || len(pools) != 1 || pools[0].Name != "default" || pools[0].Path != "/var/lib/holdfast/pools/default" {
		t.Errorf("%v %v", pools, err)
	}
}

func TestPools_UnreadableTermIsNamed(t *testing.T) {
	wrong := []core.NodeSelectorTerm{term("disks Gt many")}
	of := ask(func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = wrong }).Cluster
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: "a"}, {Name: "b", NodeSelectorTerms: wrong}}
	}).Cluster
	if _, err := Stores(of, testNode("a")); err == nil || !strings.Contains(err.Error(), "spec.nodeSelectorTerms[0]") {
		t.Errorf("it is %v", err)
	}
	if _, err := NodePools(of, testNode("a")); err == nil {
		t.Error("the pools are known of a node that may not store")
	}
	if _, err := NodePools(in, testNode("a")); err == nil || !strings.Contains(err.Error(), "spec.pools[1].nodeSelectorTerms[0]") {
		t.Errorf("it is %v", err)
	}
}
