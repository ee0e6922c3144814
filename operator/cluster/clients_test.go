package cluster

import (
	"errors"
	"maps"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// nodesOf is a controller and a situation with these nodes, by name what a label says and what their agent has found.
func nodesOf(t *testing.T, condition string, labels map[string]string, found map[string]metav1.ConditionStatus) (*Controller, *situation, *fake.Clientset) {
	t.Helper()
	kubernetes := fake.NewClientset()
	nodes := kubeinformers.NewSharedInformerFactory(kubernetes, 0).Core().V1().Nodes()
	observed := &situation{allNodes: map[string]*core.Node{}, storageNodes: map[string]*v1beta1.StorageNode{}}
	for name, label := range labels {
		n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.TopologyKey: name}}}
		if label != "" {
			n.Labels[v1beta1.ClientLabels[condition]] = label
		}
		check.OK(t, errors.Join(nodes.Informer().GetIndexer().Add(n), kubernetes.Tracker().Add(n)))
		observed.allNodes[name] = n
	}
	for name, status := range found {
		s := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			s.Status.Conditions = []metav1.Condition{{Type: condition, Status: status}}
		}
		observed.storageNodes[name] = s
	}
	return &Controller{Config: Config{Kubernetes: kubernetes}, nodes: nodes.Lister()}, observed, kubernetes
}

// labelled are the nodes with what their label says.
func labelled(t *testing.T, key string, kubernetes *fake.Clientset) map[string]string {
	t.Helper()
	list := check.Got(kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	all := map[string]string{}
	for _, n := range list.Items {
		all[n.Name] = n.Labels[key]
	}
	return all
}

func TestClientLabel_NodeIsLabelledByWhatItsAgentReports(t *testing.T) {
	for condition, key := range v1beta1.ClientLabels {
		t.Run(condition, func(t *testing.T) {
			r, observed, kubernetes := nodesOf(t, condition,
				map[string]string{"new": "", "lacks": "", "lost": "true", "got": "false", "same": "true", "silent": "true", "old": "", "others": ""},
				map[string]metav1.ConditionStatus{
					"new": metav1.ConditionTrue, "lacks": metav1.ConditionFalse, "lost": metav1.ConditionFalse, "got": metav1.ConditionTrue,
					"same": metav1.ConditionTrue, "silent": "", "old": "", "gone": metav1.ConditionTrue,
				})
			check.OK(t, r.labelNodes(t.Context(), observed.clientLabels()))
			want := map[string]string{"new": "true", "lacks": "false", "lost": "false", "got": "true", "same": "true", "silent": "true", "old": "", "others": ""}
			if got := labelled(t, key, kubernetes); !maps.Equal(got, want) {
				t.Errorf("the labels are %v, want %v", got, want)
			}
			patches := 0
			for _, a := range kubernetes.Actions() {
				if a.GetVerb() == "patch" {
					patches++
				}
			}
			if patches != 4 {
				t.Errorf("%d nodes were written, want those that change", patches)
			}
		})
	}
}

func TestClientLabel_IsRemovedWithHoldfast(t *testing.T) {
	r, _, kubernetes := nodesOf(t, v1beta1.RBDVolumesCondition, map[string]string{"a": "true", "b": "false", "c": ""}, nil)
	check.Got(r.cleanNodes(t.Context()))(t)
	for _, key := range []string{v1beta1.RBDVolumesKey, v1beta1.TopologyKey} {
		for name, label := range labelled(t, key, kubernetes) {
			if label != "" {
				t.Errorf("node %s is labelled %s", name, label)
			}
		}
	}
}

func TestClientLabel_FailureOnOneNodeDoesNotBlockTheOthers(t *testing.T) {
	r, observed, kubernetes := nodesOf(t, v1beta1.SharedVolumesCondition, map[string]string{"a": "", "b": "", "c": ""}, map[string]metav1.ConditionStatus{"a": metav1.ConditionTrue, "b": metav1.ConditionTrue, "c": metav1.ConditionTrue})
	kubernetes.PrependReactor("patch", "nodes", func(a testclient.Action) (bool, runtime.Object, error) {
		return a.(testclient.PatchAction).GetName() == "b", nil, errors.New("not for you")
	})
	if err := r.labelNodes(t.Context(), observed.clientLabels()); err == nil || !strings.Contains(err.Error(), "node b: not for you") {
		t.Errorf("got %v", err)
	}
	if got, want := labelled(t, v1beta1.SharedVolumesKey, kubernetes), (map[string]string{"a": "true", "b": "", "c": "true"}); !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

func TestClientLabel_ChangeOfAReportTriggersAReconcile(t *testing.T) {
	for condition := range v1beta1.ClientLabels {
		can := func(status metav1.ConditionStatus) *v1beta1.StorageNode {
			return &v1beta1.StorageNode{Status: v1beta1.StorageNodeStatus{Conditions: []metav1.Condition{{Type: condition, Status: status}}}}
		}
		if !storageNodeMatters(can(metav1.ConditionFalse), can(metav1.ConditionTrue)) || !storageNodeMatters(&v1beta1.StorageNode{}, can(metav1.ConditionTrue)) {
			t.Errorf("a change of %s is overlooked", condition)
		}
		if storageNodeMatters(can(metav1.ConditionTrue), can(metav1.ConditionTrue)) {
			t.Error("what has not changed matters")
		}
	}
}

func TestClientLabels_FollowTheReportOfTheAgent(t *testing.T) {
	const name = "node1"
	r, _ := inMemory(t)
	r.create("holdfast", nil)
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	check.Got(nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	for i, want := range []string{"true", "false", "true"} {
		if i == 2 { // a node that joins in a pause, such as that of an upgrade, gets pods too
			r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonPaused)
		}
		status := map[string]metav1.ConditionStatus{"true": metav1.ConditionTrue, "false": metav1.ConditionFalse}[want]
		wait.Modify(r, nodes.Get, nodes.UpdateStatus, name, func(n *v1beta1.StorageNode) {
			for condition := range v1beta1.ClientLabels {
				meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: v1beta1.ReasonReady})
			}
		})
		wait.Until(r, "the labels "+want, func() bool {
			o, err := r.theirs.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && o.Labels[v1beta1.SharedVolumesKey] == want && o.Labels[v1beta1.RBDVolumesKey] == want && o.Labels[v1beta1.CephFSVolumesKey] == want
		})
	}
}
