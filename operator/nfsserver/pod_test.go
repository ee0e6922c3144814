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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// server is one with a claim of 10Gi, changed as a test wants it.
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

func (in input) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	first := check.Got(service(in))(t)
	rest := check.Got(workload(in))(t)
	return append(first, rest...)
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
	return as[apps.StatefulSet](t, in.objects(t), "StatefulSet")
}

func (in input) container(t *testing.T) core.Container {
	t.Helper()
	return in.set(t).Spec.Template.Spec.Containers[0]
}

func TestPod_SelectorMatchesPodsOfThisServerAlone(t *testing.T) {
	in, other := asked(nil), asked(nil)
	other.server.Name = "other"
	set := in.set(t)
	service := as[core.Service](t, in.objects(t), "Service")
	for name, selects := range map[string]map[string]string{"the StatefulSet": set.Spec.Selector.MatchLabels, "the Service": service.Spec.Selector} {
		if !isSubset(selects, set.Spec.Template.Labels) {
			t.Errorf("%s selects %v and the pod has %v", name, selects, set.Spec.Template.Labels)
		}
		if isSubset(selects, other.set(t).Spec.Template.Labels) {
			t.Errorf("%s selects the pods of another server", name)
		}
	}
}

func TestPod_MovesWithItsStorageWhenItsNodeIsLost(t *testing.T) {
	if set := asked(nil).set(t); !(v1beta1.FencingSpec{}).Chooses(set.Spec.Template.Labels) {
		t.Errorf("fencing does not choose a pod with %v", set.Spec.Template.Labels)
	}
}

func isSubset(small, large map[string]string) bool {
	for key, value := range small {
		if large[key] != value {
			return false
		}
	}
	return true
}

func TestPod_IsNotPrivilegedAndNamesEachCapability(t *testing.T) {
	for _, change := range []func(*v1beta1.NFSServerSpec){nil, func(s *v1beta1.NFSServerSpec) { s.Engine = v1beta1.EngineDirectory }, publishing} {
		set := asked(change).set(t)
		pod, c := set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
		security := c.SecurityContext
		if *security.Privileged || !*security.ReadOnlyRootFilesystem || security.AppArmorProfile.Type != core.AppArmorProfileTypeUnconfined ||
			pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("the pod is %+v, %+v", pod.SecurityContext, security)
		}
		want := []core.Capability{"SYS_ADMIN", "DAC_READ_SEARCH", "DAC_OVERRIDE", "CHOWN", "FOWNER", "FSETID", "SETUID", "SETGID"}
		if !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}) || !slices.Equal(security.Capabilities.Add, want) {
			t.Errorf("the capabilities are %+v", security.Capabilities)
		}
		for _, m := range c.VolumeMounts {
			if m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional {
				t.Errorf("what is mounted at %s appears on the node", m.MountPath)
			}
		}
	}
}

func publishing(s *v1beta1.NFSServerSpec) {
	s.Storage, s.Publish = nil, &v1beta1.NFSPublication{ClaimName: "photos"}
}

func TestPod_OnlyEngineImageNeedsLoopDevicesAsManyAsItsExports(t *testing.T) {
	most := func(n int32) func(*v1beta1.NFSServerSpec) { return func(s *v1beta1.NFSServerSpec) { s.MaxExports = n } }
	for name, test := range map[string]struct {
		change func(*v1beta1.NFSServerSpec)
		want   int64 // sets
	}{
		"by default":      {nil, 1},
		"image":           {func(s *v1beta1.NFSServerSpec) { s.Engine = v1beta1.EngineImage }, 1},
		"one":             {most(1), 1},
		"a set":           {most(256), 1},
		"one more":        {most(257), 2},
		"a thousand":      {most(1000), 4},
		"all of a node":   {most(4096), 16},
		"with limits":     {func(s *v1beta1.NFSServerSpec) { s.Resources, s.MaxExports = limits("cpu", "2"), 300 }, 2},
		"its own limit":   {func(s *v1beta1.NFSServerSpec) { s.Resources, s.MaxExports = limits(v1beta1.LoopSetResource, "3"), 1000 }, 3},
		"directory":       {func(s *v1beta1.NFSServerSpec) { s.Engine, s.MaxExports = v1beta1.EngineDirectory, 1000 }, 0},
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
		service := as[core.Service](t, in.objects(t), "Service")
		if service.Spec.ClusterIP != test.want {
			t.Errorf("%s: it is %q", name, service.Spec.ClusterIP)
		}
		if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != v1beta1.NFSPort || service.Spec.Ports[0].Protocol != core.ProtocolTCP {
			t.Errorf("%s: the ports are %v", name, service.Spec.Ports)
		}
		if test.want != "" && !slices.Contains(in.container(t).Args, "--address="+test.want) {
			t.Errorf("%s: the server does not get its address", name)
		}
	}
}

func TestPod_PlacementFollowsTheSpec(t *testing.T) {
	terms := []core.NodeSelectorTerm{
		{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpExists}}},
		{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpNotIn, Values: []string{"c"}}}},
	}
	in := asked(func(s *v1beta1.NFSServerSpec) {
		s.NodeSelectorTerms = terms
		s.Tolerations = []core.Toleration{{Key: "storage", Operator: core.TolerationOpExists}}
	})
	pod := in.set(t).Spec.Template.Spec
	required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if !reflect.DeepEqual(required.NodeSelectorTerms, terms) || len(pod.Tolerations) != 1 {
		t.Errorf("it runs at %v, tolerates %v", required, pod.Tolerations)
	}
	in.node = "a"
	pinned := in.set(t).Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(pinned) != 1 || len(pinned[0].MatchExpressions) != 0 || fmt.Sprint(pinned[0].MatchFields) != "[{metadata.name In [a]}]" {
		t.Errorf("it may leave its node, or must when a label is missing: %v", pinned)
	}
	if len(terms[0].MatchFields) != 0 || len(terms[1].MatchFields) != 1 {
		t.Errorf("the spec was changed: %v", terms)
	}
	if affinity := asked(nil).set(t).Spec.Template.Spec.Affinity; affinity != nil {
		t.Errorf("without terms it may run only at %v", affinity)
	}
}

func TestPod_StorageClusterSetsImageSecretsAndPriority(t *testing.T) {
	in := asked(nil)
	in.cluster.Spec.Images.Holdfast = "r/holdfast:2"
	in.cluster.Spec.ImagePullSecrets = []core.LocalObjectReference{{Name: "registry"}}
	in.cluster.Spec.PriorityClassName = "high"
	in.cluster.Spec.ImagePullPolicy = core.PullAlways
	pod := in.set(t).Spec.Template.Spec
	if pod.Containers[0].Image != "r/nfs:2" || pod.PriorityClassName != "high" || !slices.Equal(pod.ImagePullSecrets, in.cluster.Spec.ImagePullSecrets) || pod.Containers[0].ImagePullPolicy != core.PullAlways {
		t.Errorf("the pod has the image %s, pulled %s, the priority %s, the secrets %v", pod.Containers[0].Image, pod.Containers[0].ImagePullPolicy, pod.PriorityClassName, pod.ImagePullSecrets)
	}
	in.cluster.Spec.Images.NFS = "mine:1"
	if image := in.container(t).Image; image != "mine:1" {
		t.Errorf("the image is %s", image)
	}
	in.image = "r/nfs:3"
	if image := in.container(t).Image; image != "r/nfs:3" {
		t.Errorf("in an upgrade the image is %s", image)
	}
	if priority := asked(nil).set(t).Spec.Template.Spec.PriorityClassName; priority != "system-cluster-critical" {
		t.Errorf("by itself the priority is %s", priority)
	}
}

func TestPod_PortOfTheSpecIsTheOneForClients(t *testing.T) {
	in := asked(func(s *v1beta1.NFSServerSpec) { s.Service.Port = 3049 })
	if c := in.container(t); c.Ports[0].ContainerPort != 3049 || !slices.Contains(c.Args, "--port=3049") {
		t.Errorf("the pod has %+v and %v", c.Ports, c.Args)
	}
	if p := as[core.Service](t, in.objects(t), "Service").Spec.Ports; len(p) != 1 || p[0].Port != 3049 || p[0].TargetPort.StrVal != "nfs" {
		t.Errorf("the Service has %+v", p)
	}
	in.server.Spec.Exports.Clients = []string{"10.0.0.1"}
	if p := in.networkPolicy().Spec.Ingress; len(p) != 2 || p[1].Ports[0].Port.IntValue() != 3049 {
		t.Errorf("the NetworkPolicy has %+v", p)
	}
	cilium, err := in.ciliumPolicy()
	if text := fmt.Sprint(cilium.Object); err != nil || !strings.Contains(text, "port:3049") || strings.Contains(text, "2049") {
		t.Errorf("that of Cilium is %s, %v", text, err)
	}
}

func TestPod_ReplacedForItsAccountIsOtherwiseTheSame(t *testing.T) {
	in := asked(nil)
	before := as[apps.StatefulSet](t, in.objects(t), "StatefulSet").Spec.Template
	in.renewed = "uid"
	after := as[apps.StatefulSet](t, in.objects(t), "StatefulSet").Spec.Template
	if after.Annotations[accountAnnotation] != "uid" {
		t.Errorf("the annotations are %v", after.Annotations)
	}
	delete(after.Annotations, accountAnnotation)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the pod was %+v, and is %+v", before, after)
	}
}

func node(name, disk string, taints ...core.Taint) *core.Node {
	return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": disk}}, Spec: core.NodeSpec{Taints: taints}}
}

func TestPod_StaysOnTheNodeThatHasItsDirectory(t *testing.T) {
	cordoned := core.Taint{Key: core.TaintNodeUnschedulable, Effect: core.TaintEffectNoSchedule}
	a, b, c := node("a", "slow"), node("b", "fast"), node("c", "fast")
	fast := server(func(s *v1beta1.NFSServerSpec) {
		s.Storage = &v1beta1.NFSStorage{HostPath: "/srv"}
		s.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: []string{"fast"}}}}}
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
			r.server.Spec.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: []string{"fast"}}}}}
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
