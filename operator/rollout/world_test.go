package rollout

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestWorld_OnlyNodesThatStoreAreAwaited(t *testing.T) {
	linux := func(name string) *core.Node {
		return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "linux", "role": name[:1]}}}
	}
	cluster := &v1beta1.StorageCluster{}
	cluster.Spec.NodeSelectorTerms = []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{Key: "role", Operator: core.NodeSelectorOpIn, Values: []string{"w"}}},
	}}
	stores := check.Got(Storing(cluster, []*core.Node{linux("w3"), linux("a1"), linux("w1"), linux("w2")}))(t)
	s := Sources{
		DaemonSet: set("new", 3), Pods: []*core.Pod{pod("w1", "new")}, Stores: stores,
		StorageNodes: nodes("w3", v1beta1.NodeOfServer("aaa/server"), "w2", "w1", "a1", "gone"), Registered: map[string]bool{"w1": true},
	}
	for range 20 {
		rand.Shuffle(len(s.StorageNodes), func(i, j int) { s.StorageNodes[i], s.StorageNodes[j] = s.StorageNodes[j], s.StorageNodes[i] })
		r, _ := Plan(s.World())
		if r.Node != "w2" || !strings.HasSuffix(r.Waiting, "2 of 3 node pods to be created; without one: w2, w3") {
			t.Fatalf("it waits for %q: %q", r.Node, r.Waiting)
		}
	}
}

func TestWorld_NodeWithoutACSINodeIsNotRegistered(t *testing.T) {
	knows := func(node string, drivers ...string) *storage.CSINode {
		n := &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		for _, d := range drivers {
			n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: d})
		}
		return n
	}
	s := Sources{Registered: Registered([]*storage.CSINode{knows("a", "other", "ours"), knows("b", "other")}, "ours")}
	for _, name := range []string{"a", "b", "c"} {
		s.Stores = append(s.Stores, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var unregistered []string
	for name, is := range s.World().Unregistered {
		if is {
			unregistered = append(unregistered, name)
		}
	}
	if slices.Sort(unregistered); !slices.Equal(unregistered, []string{"b", "c"}) {
		t.Errorf("not registered are %q", unregistered)
	}
}
