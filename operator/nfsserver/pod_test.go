package nfsserver

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// server is one with a claim of 10Gi, changed as a test needs it.
func server(change func(*v1beta1.NFSServerSpec)) *v1beta1.NFSServer {
	size := resource.MustParse("10Gi")
	s := &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", UID: "1234", Generation: 3},
		Spec:       v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{Size: &size}},
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func asked(change func(*v1beta1.NFSServerSpec)) input {
	return input{desired: desired{server: server(change), cluster: &v1beta1.StorageCluster{}, holdfast: "holdfast-system"}, address: "10.0.0.9"}
}

func (in input) objects() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{service(in), workload(in)}
}

// as returns the object of a kind.
func as[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) *T {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind {
			typed := new(T)
			check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true))
			return typed
		}
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

func (in input) set(t *testing.T) *apps.StatefulSet {
	t.Helper()
	return as[apps.StatefulSet](t, in.objects(), "StatefulSet")
}

func (in input) container(t *testing.T) core.Container {
	t.Helper()
	return in.set(t).Spec.Template.Spec.Containers[0]
}

// The golden file has the selectors and labels of one server.
func TestPod_IsOfItsServerAloneAndMovesWithItsStorageWhenItsNodeIsLost(t *testing.T) {
	in := asked(nil)
	in.server.Name = "other"
	labels := in.set(t).Spec.Template.Labels
	if selected := apilabels.SelectorFromSet(selector(server(nil))); selected.Matches(apilabels.Set(labels)) {
		t.Errorf("%s selects a pod of another server, with %v", selected, labels)
	}
	if !(v1beta1.FencingSpec{}).Chooses(labels) {
		t.Errorf("fencing does not choose a pod with %v", labels)
	}
}

// checkPowers fails if a pod of a server may do more than it must, or reaches the node that it runs on.
func checkPowers(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.InitContainers) > 0 || len(pod.Containers) != 1 {
		t.Fatalf("the pod has more than one container, or namespaces of its node: %+v", pod)
	}
	if want := (&core.PodSecurityContext{SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}}); !reflect.DeepEqual(pod.SecurityContext, want) {
		t.Errorf("the pod may do %+v, want %+v", pod.SecurityContext, want)
	}
	c := pod.Containers[0]
	if want := (&core.SecurityContext{
		Privileged: new(false), ReadOnlyRootFilesystem: new(true), RunAsUser: new(int64(0)),
		AppArmorProfile: &core.AppArmorProfile{Type: core.AppArmorProfileTypeUnconfined}, // it mounts
		Capabilities: &core.Capabilities{
			Drop: []core.Capability{"ALL"},
			Add:  []core.Capability{"SYS_ADMIN", "DAC_READ_SEARCH", "DAC_OVERRIDE", "CHOWN", "FOWNER", "FSETID", "SETUID", "SETGID"},
		},
	}); !reflect.DeepEqual(c.SecurityContext, want) {
		t.Errorf("the container may do %+v, want %+v", c.SecurityContext, want)
	}
	for _, m := range c.VolumeMounts {
		if m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional {
			t.Errorf("what is mounted at %s appears on the node", m.MountPath)
		}
	}
}

func TestPod_IsNotPrivilegedAndNamesEachCapability(t *testing.T) {
	for _, change := range []func(*v1beta1.NFSServerSpec){
		nil, func(s *v1beta1.NFSServerSpec) { s.Engine = v1beta1.EngineDirectory }, publishing,
		func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{HostPath: "/srv"} },
	} {
		checkPowers(t, &asked(change).set(t).Spec.Template.Spec)
	}
}

func publishing(s *v1beta1.NFSServerSpec) {
	s.Storage, s.Publish = nil, &v1beta1.NFSPublication{ClaimName: "photos"}
}

func TestPod_OnlyEngineImageNeedsLoopDevicesAsManyAsItsExports(t *testing.T) {
	type spec = v1beta1.NFSServerSpec
	for name, test := range map[string]struct {
		change func(*spec)
		want   int64 // sets
	}{
		"by default":      {nil, 1},
		"image":           {func(s *spec) { s.Engine = v1beta1.EngineImage }, 1},
		"one":             {func(s *spec) { s.MaxExports = 1 }, 1},
		"a set":           {func(s *spec) { s.MaxExports = 256 }, 1},
		"one more":        {func(s *spec) { s.MaxExports = 257 }, 2},
		"all of a node":   {func(s *spec) { s.MaxExports = 4096 }, 16},
		"with limits":     {func(s *spec) { s.Resources, s.MaxExports = limits("cpu", "2"), 300 }, 2},
		"its own limit":   {func(s *spec) { s.Resources, s.MaxExports = limits(v1beta1.LoopSetResource, "3"), 1000 }, 3},
		"directory":       {func(s *spec) { s.Engine, s.MaxExports = v1beta1.EngineDirectory, 1000 }, 0},
		"what is publish": {publishing, 0},
	} {
		limits := asked(test.change).container(t).Resources.Limits
		n, has := limits[v1beta1.LoopSetResource]
		if n.Value() != test.want || has != (test.want > 0) {
			t.Errorf("%s: the limits are %v", name, limits)
		}
	}
}

func limits(name core.ResourceName, amount string) core.ResourceRequirements {
	return core.ResourceRequirements{Limits: core.ResourceList{name: resource.MustParse(amount)}}
}

func TestService_KeepsItsAddress(t *testing.T) {
	for name, test := range map[string]struct{ asked, had, want string }{
		"none yet":     {"", "", ""},
		"given":        {"", "10.0.0.9", "10.0.0.9"},
		"asked":        {"10.0.0.7", "", "10.0.0.7"},
		"asked before": {"10.0.0.7", "10.0.0.7", "10.0.0.7"},
	} {
		in := asked(func(s *v1beta1.NFSServerSpec) { s.Service.ClusterIP = test.asked })
		in.address = test.had
		if got := as[core.Service](t, in.objects(), "Service").Spec.ClusterIP; got != test.want {
			t.Errorf("%s: it is %q", name, got)
		}
		if test.want != "" && !slices.Contains(in.container(t).Args, "--address="+test.want) {
			t.Errorf("%s: the server does not get its address", name)
		}
	}
}

// The golden file has the terms and the tolerations of a spec.
func TestPod_PinnedToItsNodeMayNotLeaveItAndNeedsNoLabel(t *testing.T) {
	terms := []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpExists}}}}
	in := asked(func(s *v1beta1.NFSServerSpec) { s.NodeSelectorTerms = terms })
	in.node = "a"
	pinned := in.set(t).Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(pinned) != 1 || len(pinned[0].MatchExpressions) != 0 || fmt.Sprint(pinned[0].MatchFields) != "[{metadata.name In [a]}]" {
		t.Errorf("it may leave its node, or must when a label is missing: %v", pinned)
	}
	if len(terms[0].MatchFields) != 0 {
		t.Errorf("the spec was changed: %v", terms)
	}
}

func TestPod_StorageClusterSetsImageSecretsAndPriority(t *testing.T) {
	in := asked(nil)
	in.cluster.Spec.Images.Holdfast = "r/holdfast:2"
	in.cluster.Spec.ImagePullSecrets = []core.LocalObjectReference{{Name: "registry"}}
	in.cluster.Spec.PriorityClassName = "high"
	in.cluster.Spec.ImagePullPolicy = core.PullAlways
	pod := in.set(t).Spec.Template.Spec
	c := pod.Containers[0]
	got := fmt.Sprintf("%s %s %s %s", c.Image, c.ImagePullPolicy, pod.PriorityClassName, pod.ImagePullSecrets)
	if got != "r/nfs:2 Always high [{registry}]" {
		t.Errorf("the pod has %s", got)
	}
	in.cluster.Spec.Images.NFS = "mine:1"
	set := in.container(t).Image
	in.image = "r/nfs:3"
	if upgraded := in.container(t).Image; set != "mine:1" || upgraded != "r/nfs:3" {
		t.Errorf("the image is %s, and in an upgrade %s", set, upgraded)
	}
}

func TestPod_ReplacedForItsAccountIsOtherwiseTheSame(t *testing.T) {
	in := asked(nil)
	same := in.set(t).Spec.Template
	metav1.SetMetaDataAnnotation(&same.ObjectMeta, accountAnnotation, "uid")
	in.renewed = "uid"
	if got := in.set(t).Spec.Template; !reflect.DeepEqual(got, same) {
		t.Errorf("the pod is %+v, want %+v", got, same)
	}
}

func node(name, disk string, taints ...core.Taint) *core.Node {
	return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": disk}}, Spec: core.NodeSpec{Taints: taints}}
}

var fastDisks = []core.NodeSelectorTerm{{
	MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: []string{"fast"}}},
}}

func TestPod_StaysOnTheNodeThatHasItsDirectory(t *testing.T) {
	cordoned := core.Taint{Key: core.TaintNodeUnschedulable, Effect: core.TaintEffectNoSchedule}
	a, b, c := node("a", "slow"), node("b", "fast"), node("c", "fast")
	fast := server(func(s *v1beta1.NFSServerSpec) {
		s.Storage = &v1beta1.NFSStorage{HostPath: "/srv"}
		s.NodeSelectorTerms = fastDisks
	})
	tolerant := fast.DeepCopy()
	tolerant.Spec.Tolerations = []core.Toleration{{Operator: core.TolerationOpExists}}
	for name, test := range map[string]struct {
		server *v1beta1.NFSServer
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
		if got := chooseNode(test.server, test.has, test.nodes); got != test.want {
			t.Errorf("%s: it is %q, want %q", name, got, test.want)
		}
	}
}

func TestPod_LeavesTheNodeThatLostItsLabelOnlyWhenItIsEmpty(t *testing.T) {
	holding := func(promised string) *v1beta1.StorageNode {
		return &v1beta1.StorageNode{Status: v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{{Name: "default", Promised: resource.MustParse(promised)}}}}
	}
	for name, test := range map[string]struct {
		change func(*round)
		stays  bool
	}{
		"it has a volume":                {func(r *round) { r.volumes = 1 }, true},
		"it has a snapshot":              {func(r *round) { r.snapshots = 1 }, true},
		"its pool has something":         {func(r *round) { r.storage = holding("1Gi") }, true},
		"a kind is missing":              {func(r *round) { r.incomplete = true }, true},
		"it has served, without report":  {func(r *round) { r.storage = nil }, true},
		"it is empty":                    {func(*round) {}, false},
		"it never served, has no report": {func(r *round) { r.storage, r.server.Status.Conditions = nil, nil }, false},
	} {
		r := look(func(r *round) {
			r.server.Spec.Storage = &v1beta1.NFSStorage{HostPath: "/srv"}
			r.server.Spec.NodeSelectorTerms = fastDisks
			r.server.Status.Node = "node1"
			r.server.Status.Conditions = []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
			r.nodes = []*core.Node{node("node1", ""), node("node2", "fast")}
			r.volumes, r.exports, r.storage = 0, 0, holding("0")
			test.change(r)
		})
		want, degraded := "node2", reasonHealthy
		if test.stays {
			want, degraded = "node1", reasonNode
		}
		next := r.status()
		if got := r.input(); got.node != want || next.Node != want {
			t.Errorf("%s: the pod is to run on %q, and the status has %q, want %s", name, got.node, next.Node, want)
		}
		if got := find(&next, v1beta1.DegradedCondition); got.Reason != degraded || test.stays && !strings.Contains(got.Message, "do not select node node1") {
			t.Errorf("%s: Degraded has the reason %s: %s", name, got.Reason, got.Message)
		}
		r.nodes[0].Labels["disk"] = "fast"
		if next := r.status(); next.Node != "node1" || find(&next, v1beta1.DegradedCondition).Reason != reasonHealthy {
			t.Errorf("%s: with its label it is on %s: %+v", name, next.Node, find(&next, v1beta1.DegradedCondition))
		}
	}
}
