package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// set is a DaemonSet of a revision for so many nodes.
func set(revision string, nodes int) *apps.DaemonSet {
	d := &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-node", Namespace: "ns", UID: "set", Generation: 2}}
	d.Spec.Template.Annotations = map[string]string{RevisionAnnotation: revision}
	d.Status.ObservedGeneration, d.Status.DesiredNumberScheduled = 2, int32(nodes)
	return d
}

// pod of a node, which is ready unless it is changed.
func pod(node, revision string, changes ...func(*core.Pod)) *core.Pod {
	yes := true
	p := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod-" + node, Namespace: "ns", UID: types.UID("uid-" + node), Annotations: map[string]string{RevisionAnnotation: revision},
			CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
			OwnerReferences:   []metav1.OwnerReference{{Kind: "DaemonSet", Name: "holdfast-node", UID: "set", Controller: &yes}},
		},
		Spec:   core.PodSpec{NodeName: node},
		Status: core.PodStatus{Phase: core.PodRunning, Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func unready(p *core.Pod) { p.Status.Conditions[0].Status = core.ConditionFalse }

func younger(p *core.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1002, 0)) }

func ending(p *core.Pod) {
	now := metav1.Now()
	p.DeletionTimestamp, p.Finalizers = &now, []string{"x"}
}

func crashing(p *core.Pod) {
	unready(p)
	p.Status.ContainerStatuses = []core.ContainerStatus{{
		Name: "holdfast", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
		LastTerminationState: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 1, Message: "no such pool"}},
	}}
}

func storageNode(name string, status metav1.ConditionStatus) *v1beta1.StorageNode {
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: status, Message: "its disk fails"}}
	return n
}

func nodes(names ...string) (all []*v1beta1.StorageNode) {
	for _, name := range names {
		all = append(all, storageNode(name, metav1.ConditionTrue))
	}
	return all
}

func world(d *apps.DaemonSet, pods []*core.Pod, nodes []*v1beta1.StorageNode) World {
	return World{DaemonSet: d, Pods: pods, Nodes: nodes}
}

func TestPlan_ReplacesAndWaits(t *testing.T) {
	for name, test := range map[string]struct {
		world   World
		replace string // the node
		want    Result // Waiting is a part of it
	}{
		"all are current": {
			world(set("new", 2), []*core.Pod{pod("a", "new"), pod("b", "new")}, nodes("a", "b")), "",
			Result{Done: true, Total: 2, Updated: 2},
		},
		"the first of two": {
			world(set("new", 2), []*core.Pod{pod("b", "old"), pod("a", "old")}, nodes("a", "b")), "a",
			Result{Total: 2, Node: "a", Waiting: "node a"},
		},
		"the second of two": {
			world(set("new", 2), []*core.Pod{pod("a", "new"), pod("b", "old")}, nodes("a", "b")), "b",
			Result{Total: 2, Updated: 1, Node: "b", Waiting: "node b"},
		},
		"the new pod is not ready yet": {
			world(set("new", 2), []*core.Pod{pod("a", "new", unready), pod("b", "old")}, nodes("a", "b")), "",
			Result{Total: 2, Node: "a", Since: time.Unix(1000, 0), Waiting: "pod-a of node a to become ready"},
		},
		"the new pod crashes": {
			world(set("new", 2), []*core.Pod{pod("a", "new", crashing), pod("b", "old")}, nodes("a", "b")), "",
			Result{Total: 2, Node: "a", Since: time.Unix(1000, 0), Stuck: true, Waiting: "ended with code 1: no such pool"},
		},
		"the old pod is ending": {
			world(set("new", 2), []*core.Pod{pod("a", "old", ending), pod("b", "old")}, nodes("a", "b")), "",
			Result{Total: 2, Node: "a", Waiting: "pod-a of node a to end"},
		},
		"the new pod is not made yet": {
			world(set("new", 2), []*core.Pod{pod("b", "old")}, nodes("a", "b")), "",
			Result{Total: 2, Node: "a", Waiting: "1 of 2 node pods to be created"},
		},
		"another node is not ready": {
			world(set("new", 2), []*core.Pod{pod("a", "old"), pod("b", "new")}, []*v1beta1.StorageNode{storageNode("a", "True"), storageNode("b", "Unknown")}), "",
			Result{Total: 2, Updated: 1, Node: "b", Since: time.Unix(1000, 0), Waiting: "its disk fails"},
		},
		"storage that is not ready with the old pod comes first": {
			world(set("new", 3), []*core.Pod{pod("a", "old"), pod("b", "old"), pod("c", "new")}, []*v1beta1.StorageNode{storageNode("a", "True"), storageNode("b", "False"), storageNode("c", "True")}), "b",
			Result{Total: 3, Updated: 1, Node: "b", Waiting: "node b"},
		},
		"storage of two that is not ready": {
			world(set("new", 2), []*core.Pod{pod("a", "new"), pod("b", "old")}, []*v1beta1.StorageNode{storageNode("a", "False"), storageNode("b", "False")}), "b",
			Result{Total: 2, Updated: 1, Node: "b", Waiting: "node b"},
		},
		"storage that is not ready while another pod is not made yet": {
			world(set("new", 2), []*core.Pod{pod("b", "old")}, []*v1beta1.StorageNode{storageNode("a", "True"), storageNode("b", "False")}), "",
			Result{Total: 2, Node: "a", Waiting: "1 of 2 node pods to be created"},
		},
		"a node that has no pod is not ready": {
			world(set("new", 1), []*core.Pod{pod("a", "old")}, []*v1beta1.StorageNode{storageNode("a", "True"), storageNode("gone", "Unknown")}), "a",
			Result{Total: 1, Node: "a", Waiting: "node a"},
		},
		"an old pod that does not work comes first": {
			world(set("new", 2), []*core.Pod{pod("a", "old"), pod("b", "old", crashing)}, nodes("a", "b")), "b",
			Result{Total: 2, Node: "b", Waiting: "node b"},
		},
		"a bad template is mended by the next": {
			world(set("good", 3), []*core.Pod{pod("a", "bad", crashing), pod("b", "old"), pod("c", "old")}, []*v1beta1.StorageNode{storageNode("a", "Unknown"), storageNode("b", "True"), storageNode("c", "True")}), "a",
			Result{Total: 3, Node: "a", Waiting: "node a"},
		},
		"Kubernetes has not seen the template": {
			world(func() *apps.DaemonSet { d := set("new", 1); d.Generation = 3; return d }(), []*core.Pod{pod("a", "old")}, nodes("a")), "",
			Result{Total: 1, Waiting: "Kubernetes"},
		},
		"pods of others and pods that have ended": {
			world(set("new", 1), []*core.Pod{pod("a", "new"), pod("b", "old", func(p *core.Pod) { p.OwnerReferences[0].UID = "other" }), pod("c", "old", func(p *core.Pod) { p.Status.Phase = core.PodFailed })}, nodes("a")), "",
			Result{Done: true, Total: 1, Updated: 1},
		},
		"the kubelet does not know the new driver yet": {
			World{DaemonSet: set("new", 2), Pods: []*core.Pod{pod("a", "new"), pod("b", "old")}, Nodes: nodes("a", "b"), Unregistered: map[string]bool{"a": true}},
			"",
			Result{Total: 2, Updated: 1, Node: "a", Since: time.Unix(1000, 0), Waiting: "registered with the kubelet of node a"},
		},
		"the kubelet does not know the old driver": {
			World{DaemonSet: set("new", 2), Pods: []*core.Pod{pod("a", "old"), pod("b", "old")}, Nodes: nodes("a", "b"), Unregistered: map[string]bool{"a": true, "b": true}},
			"a",
			Result{Total: 2, Node: "a", Waiting: "node a"},
		},
		"pods that have lost their account are replaced, and nothing holds that up": {
			World{DaemonSet: set("new", 2), Pods: []*core.Pod{pod("a", "new", younger), pod("b", "new")}, Nodes: []*v1beta1.StorageNode{storageNode("a", "Unknown"), storageNode("b", "Unknown")}, Account: time.Unix(1001, 0)},
			"b",
			Result{Total: 2, Updated: 1, Node: "b", Waiting: "node b"},
		},
		"pods of the same second as their account": {
			World{DaemonSet: set("new", 1), Pods: []*core.Pod{pod("a", "new")}, Nodes: nodes("a"), Account: time.Unix(1000, 0)},
			"",
			Result{Done: true, Total: 1, Updated: 1},
		},
		"no node at all": {World{DaemonSet: set("new", 0)}, "", Result{Done: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, next := Plan(test.world)
			replaced := ""
			if next != nil {
				replaced = next.Spec.NodeName
			}
			if replaced != test.replace {
				t.Errorf("replaces the pod of %q, want %q", replaced, test.replace)
			}
			if !strings.Contains(got.Waiting, test.want.Waiting) || (got.Waiting == "") != (test.want.Waiting == "") {
				t.Errorf("waits for %q, want %q", got.Waiting, test.want.Waiting)
			}
			if got.Waiting = test.want.Waiting; got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Whatever the order in which pods come up, no two are ever away at once.
func TestRollout_OfManyNodesReplacesThemOneByOneAndEnds(t *testing.T) {
	const many = 20
	w := World{DaemonSet: set("new", many)}
	for i := range many {
		name := fmt.Sprintf("node-%02d", i)
		w.Pods, w.Nodes = append(w.Pods, pod(name, "old")), append(w.Nodes, storageNode(name, "True"))
	}
	client := fake.NewClientset()
	for _, p := range w.Pods {
		check.OK(t, client.Tracker().Add(p))
	}
	var order []string
	for range 10 * many {
		r := check.Got(Step(t.Context(), client, w))(t)
		if r.Done {
			break
		}
		left := check.Got(client.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{}))(t)
		if away := many - len(left.Items); away > 1 {
			t.Fatalf("%d pods are away", away)
		}
		if len(left.Items) == many {
			t.Fatalf("nothing is done, and it waits for %s", r.Waiting)
		}
		order = append(order, r.Node)
		// The cache still shows the old pod: nothing more may happen.
		check.Got(Step(t.Context(), client, w))(t)
		fresh := pod(r.Node, "new")
		fresh.UID = types.UID("new-" + r.Node)
		check.OK(t, client.Tracker().Add(fresh))
		i := slices.IndexFunc(w.Pods, func(p *core.Pod) bool { return p.Spec.NodeName == r.Node })
		w.Pods[i] = fresh
	}
	if len(order) != many || !slices.IsSorted(order) {
		t.Errorf("replaced were %q", order)
	}
}

func TestStamp_ChangesWithTheTemplateOnly(t *testing.T) {
	object := func(image, label string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "DaemonSet", "metadata": map[string]any{"name": "x", "labels": map[string]any{"a": label}},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"image": image}}},
		}}
	}
	stamp := func(o *unstructured.Unstructured) string {
		check.OK(t, StampAll([]*unstructured.Unstructured{o}))
		value, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", RevisionAnnotation)
		return value
	}
	first := object("one", "a")
	value := stamp(first)
	if value == "" || stamp(first) != value || stamp(object("one", "b")) != value {
		t.Errorf("the stamp %q does not stay", value)
	}
	if stamp(object("two", "a")) == value {
		t.Error("another template has the same stamp")
	}
}

func TestFault_IsReportedTheSameAtEachAttempt(t *testing.T) {
	waiting := func(reason, message string) core.ContainerStatus {
		return core.ContainerStatus{Name: "holdfast", Image: "example/x:1", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	ended := func(s core.ContainerStatus, message string) core.ContainerStatus {
		s.LastTerminationState.Terminated = &core.ContainerStateTerminated{ExitCode: 2, Message: message}
		return s
	}
	for name, test := range map[string]struct {
		attempts []core.ContainerStatus
		want     string
		failed   bool
	}{
		"an image that does not exist": {[]core.ContainerStatus{waiting("ErrImagePull", "not found"), waiting("ImagePullBackOff", "Back-off pulling")}, "image example/x:1 cannot be pulled", true},
		"a container that ends": {[]core.ContainerStatus{
			ended(waiting("CrashLoopBackOff", "back-off 10s"), "bad flag"), ended(waiting("CrashLoopBackOff", "back-off 5m0s"), "bad flag"),
			ended(core.ContainerStatus{Name: "holdfast", State: core.ContainerState{Running: &core.ContainerStateRunning{}}}, "bad flag"),
		}, "code 2: bad flag", true},
		"a container that is not made": {[]core.ContainerStatus{
			waiting("CreateContainerError", "container \"0123456789abcdef0123456789abcdef\" fails"), waiting("CreateContainerError", "container \"ffffffffffffffffffffffffffffffff\" fails"),
		}, "CreateContainerError", true},
		"one that hangs":  {[]core.ContainerStatus{{Name: "holdfast", State: core.ContainerState{Running: &core.ContainerStateRunning{}}}}, "does not answer its readiness probe", false},
		"one that begins": {[]core.ContainerStatus{waiting("ContainerCreating", ""), {Name: "holdfast"}}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var reports []string
			for _, status := range test.attempts {
				why, failed := Trouble(&core.Pod{Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{status}}})
				if failed != test.failed || !strings.Contains(why, test.want) {
					t.Errorf("got %q %v, want %q %v", why, failed, test.want, test.failed)
				}
				reports = append(reports, why)
			}
			if len(slices.Compact(reports)) != 1 {
				t.Errorf("it is reported as %q", reports)
			}
		})
	}
	if why, failed := Trouble(&core.Pod{Status: core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "no room"}}}}); !failed || !strings.Contains(why, "no room") {
		t.Errorf("a pod that is not scheduled: %q %v", why, failed)
	}
	long, _ := Trouble(&core.Pod{Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{waiting("X", strings.Repeat("é", 5000))}}})
	if len(long) > 500 || !strings.HasSuffix(long, "...") {
		t.Errorf("a message of %d bytes", len(long))
	}
}
