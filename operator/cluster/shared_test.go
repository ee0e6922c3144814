package cluster

import (
	"context"
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
)

// nodesOf is a controller and a situation with these nodes, by name what their label says and what their agent has found.
func nodesOf(t *testing.T, labels map[string]string, found map[string]metav1.ConditionStatus) (*Controller, *situation, *fake.Clientset) {
	t.Helper()
	kubernetes := fake.NewClientset()
	nodes := kubeinformers.NewSharedInformerFactory(kubernetes, 0).Core().V1().Nodes()
	observed := &situation{allNodes: map[string]*core.Node{}, storageNodes: map[string]*v1beta1.StorageNode{}}
	for name, label := range labels {
		n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.TopologyKey: name}}}
		if label != "" {
			n.Labels[v1beta1.SharedVolumesKey] = label
		}
		if err := errors.Join(nodes.Informer().GetIndexer().Add(n), kubernetes.Tracker().Add(n)); err != nil {
			t.Fatal(err)
		}
		observed.allNodes[name] = n
	}
	for name, status := range found {
		s := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			s.Status.Conditions = []metav1.Condition{{Type: v1beta1.SharedVolumesCondition, Status: status}}
		}
		observed.storageNodes[name] = s
	}
	return &Controller{Config: Config{Kubernetes: kubernetes}, nodes: nodes.Lister()}, observed, kubernetes
}

// labelled are the nodes with what their label says.
func labelled(t *testing.T, kubernetes *fake.Clientset) map[string]string {
	t.Helper()
	list, err := kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		all[n.Name] = n.Labels[v1beta1.SharedVolumesKey]
	}
	return all
}

func TestSharedLabel_NodeIsLabelledByWhetherItCanMountSharedVolumes(t *testing.T) {
	r, observed, kubernetes := nodesOf(t,
		map[string]string{"new": "", "lacks": "", "lost": "true", "got": "false", "same": "true", "silent": "true", "old": "", "others": ""},
		map[string]metav1.ConditionStatus{
			"new": metav1.ConditionTrue, "lacks": metav1.ConditionFalse, "lost": metav1.ConditionFalse, "got": metav1.ConditionTrue,
			"same": metav1.ConditionTrue, "silent": "", "old": "", "gone": metav1.ConditionTrue,
		})
	if err := r.labelNodes(t.Context(), observed.sharedLabels()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"new": "true", "lacks": "false", "lost": "false", "got": "true", "same": "true", "silent": "true", "old": "", "others": ""}
	if got := labelled(t, kubernetes); !maps.Equal(got, want) {
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
	if _, err := r.cleanNodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.CoreV1().Nodes().Get(t.Context(), "same", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, label := range labelled(t, kubernetes) {
		if label != "" {
			t.Errorf("after a removal node %s is labelled %s", name, label)
		}
	}
}

func TestSharedLabel_FailureOnOneNodeDoesNotBlockTheOthers(t *testing.T) {
	r, observed, kubernetes := nodesOf(t, map[string]string{"a": "", "b": "", "c": ""}, map[string]metav1.ConditionStatus{"a": metav1.ConditionTrue, "b": metav1.ConditionTrue, "c": metav1.ConditionTrue})
	kubernetes.PrependReactor("patch", "nodes", func(a testclient.Action) (bool, runtime.Object, error) {
		return a.(testclient.PatchAction).GetName() == "b", nil, errors.New("not for you")
	})
	if err := r.labelNodes(t.Context(), observed.sharedLabels()); err == nil || !strings.Contains(err.Error(), "node b: not for you") {
		t.Errorf("got %v", err)
	}
	if got, want := labelled(t, kubernetes), (map[string]string{"a": "true", "b": "", "c": "true"}); !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

func TestSharedLabel_ChangeOfMountabilityTriggersAReconcile(t *testing.T) {
	can := func(status metav1.ConditionStatus) *v1beta1.StorageNode {
		return &v1beta1.StorageNode{Status: v1beta1.StorageNodeStatus{Conditions: []metav1.Condition{{Type: v1beta1.SharedVolumesCondition, Status: status}}}}
	}
	if !storageNodeMatters(can(metav1.ConditionFalse), can(metav1.ConditionTrue)) || !storageNodeMatters(&v1beta1.StorageNode{}, can(metav1.ConditionTrue)) {
		t.Error("a change is overlooked")
	}
	if storageNodeMatters(can(metav1.ConditionTrue), can(metav1.ConditionTrue)) {
		t.Error("what has not changed matters")
	}
}

func TestSharedLabel_FollowsTheReportOfTheAgent(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", func(*v1beta1.StorageClusterSpec) {})
	r.reconciled("holdfast")
	const name = "node1"
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	n, err := nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.stop()
		err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{})
		if err := errors.Join(err, r.controller.label(context.Background(), name, map[string]any{v1beta1.SharedVolumesKey: nil})); err != nil {
			t.Error(err)
		}
	})
	for status, want := range map[metav1.ConditionStatus]string{metav1.ConditionTrue: "true", metav1.ConditionFalse: "false"} {
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1beta1.SharedVolumesCondition, Status: status, Reason: v1beta1.ReasonReady})
		if n, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.until("the label "+want, func() bool {
			o, err := r.theirs.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && o.Labels[v1beta1.SharedVolumesKey] == want
		})
	}
}
