package render

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func nodeOf(t *testing.T, in Input) *apps.DaemonSet {
	t.Helper()
	return must[apps.DaemonSet](t, in, "DaemonSet", "holdfast-node")
}

// same compares as JSON does, in which an empty list is as good as none.
func same(t *testing.T, want, got any) {
	t.Helper()
	a, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("wanted\n%s\ngot\n%s", a, b)
	}
}

// hostPaths returns where the directories of the node are mounted.
func hostPaths(t *testing.T, pod core.PodSpec) map[string]core.VolumeMount {
	t.Helper()
	hosts := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			hosts[v.Name] = v.HostPath.Path
		}
	}
	mounts := map[string]core.VolumeMount{}
	for _, mount := range container(&pod, "holdfast").VolumeMounts {
		if host := hosts[mount.Name]; host != "" {
			if host != mount.MountPath && host != "/proc" && host != "/etc" { // the pod has its own
				t.Errorf("%s of the node is %s in the pod", host, mount.MountPath)
			}
			mounts[host] = mount
		}
	}
	return mounts
}

func TestNode_PodsAreReplacedByTheOperator(t *testing.T) {
	if got := nodeOf(t, ask(nil)).Spec.UpdateStrategy.Type; got != apps.OnDeleteDaemonSetStrategyType {
		t.Errorf("the strategy is %s", got)
	}
}

// Without a probe a pod is ready as soon as it runs, and a version that does not work would reach every node.
func TestNode_IsReadyOnlyWhenItAnswers(t *testing.T) {
	for name, in := range inputs() {
		if name == "without CSI" {
			continue
		}
		pod := nodeOf(t, in).Spec.Template.Spec
		probe := container(&pod, "holdfast").ReadinessProbe
		if probe == nil || probe.HTTPGet.Path != "/readyz" || probe.HTTPGet.Port.String() != "metrics" || probe.PeriodSeconds > 5 {
			t.Errorf("%s: it is asked by %+v", name, probe)
		}
		if alive := container(&pod, "holdfast").LivenessProbe; alive.FailureThreshold < 12 {
			t.Errorf("%s: one that is late is ended by %+v", name, alive)
		}
	}
}

func TestNode_ReadsItsPoolsFromTheConfigMap(t *testing.T) {
	pools := []v1beta1.PoolSpec{
		{Name: "fast", Path: "/srv/fast", Engine: v1beta1.EngineDirectory, Overcommit: "1.5", Reserved: "1Gi"},
		{Name: "disk", Devices: &v1beta1.DeviceSelector{Model: "x"}},
		{Name: "own"},
	}
	for name, test := range map[string]struct{ asked, want []v1beta1.PoolSpec }{
		"none":  {nil, []v1beta1.PoolSpec{{Name: "default", Path: "/var/lib/holdfast/pools/default", Reserved: "10%"}}},
		"three": {pools, []v1beta1.PoolSpec{pools[0], pools[1], {Name: "own", Path: "/var/lib/holdfast/pools/own"}}},
	} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Pools = test.asked })
		var got v1beta1.NodeConfig
		content := must[core.ConfigMap](t, in, "ConfigMap", "holdfast-node").Data["node.json"]
		if err := json.Unmarshal([]byte(content), &got); err != nil {
			t.Fatalf("%s: %s: %v", name, content, err)
		}
		if !reflect.DeepEqual(got.Pools, test.want) {
			t.Errorf("%s: the pools are %s", name, content)
		}
		pod := nodeOf(t, in).Spec.Template.Spec
		if !slices.Contains(arguments(t, pod, "holdfast"), "--config=/etc/holdfast/node.json") {
			t.Errorf("%s: it is not read: %v", name, arguments(t, pod, "holdfast"))
		}
		volume := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == "holdfast-node" })
		mounted := func(m core.VolumeMount) bool {
			return m.MountPath == "/etc/holdfast" && m.ReadOnly && volume >= 0 && m.Name == pod.Volumes[volume].Name
		}
		if !slices.ContainsFunc(container(&pod, "holdfast").VolumeMounts, mounted) {
			t.Errorf("%s: it is not mounted: %+v", name, pod)
		}
	}
}

func TestNode_ChangeOfPoolsReplacesThePods(t *testing.T) {
	seen := map[string]bool{}
	for _, pools := range [][]v1beta1.PoolSpec{nil, {{Name: "a"}}, {{Name: "a", Reserved: "1%"}}, {{Name: "a"}, {Name: "b"}}} {
		seen[nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Pools = pools })).Spec.Template.Annotations["holdfast.dev/config-hash"]] = true
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("the hashes are %v", seen)
	}
}

func TestPools_AreMountedWhereTheyAre(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Distribution = "k0s"
		s.Pools = []v1beta1.PoolSpec{
			{Name: "inside", Path: "/var/lib/holdfast/fast"},
			{Name: "near", Path: "/var/lib/holdfast-data"},
			{Name: "disk", Devices: &v1beta1.DeviceSelector{Model: "x"}},
			{Name: "kubelet", Path: "/var/lib/kubelet-data"},
			{Name: "own"},
		}
	})
	want := map[string]core.MountPropagationMode{
		"/var/lib/k0s/kubelet": core.MountPropagationBidirectional, "/dev": "", "/etc": "", "/proc": "",
		"/var/lib/holdfast": core.MountPropagationBidirectional, "/var/lib/holdfast-data": "", "/var/lib/kubelet-data": "",
	}
	mounted(t, in, want)
	// Not every node shares its root, and only disks need that.
	in.Cluster.Spec.Pools = slices.DeleteFunc(in.Cluster.Spec.Pools, func(p v1beta1.PoolSpec) bool { return p.Devices != nil })
	want["/var/lib/holdfast"] = ""
	mounted(t, in, want)
	in.Cluster.Spec.Pools = in.Cluster.Spec.Pools[1:3]
	delete(want, "/var/lib/holdfast")
	mounted(t, in, want)
}

// mounted checks which directories of the node are mounted, and how.
func mounted(t *testing.T, in Input, want map[string]core.MountPropagationMode) {
	t.Helper()
	got := map[string]core.MountPropagationMode{}
	pod := nodeOf(t, in).Spec.Template.Spec
	for host, mount := range hostPaths(t, pod) {
		got[host] = ""
		if mount.MountPropagation != nil {
			got[host] = *mount.MountPropagation
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("mounted are %v, not %v", got, want)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil && !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.Name == v.Name }) {
			t.Errorf("the volume %s is not mounted", v.Name)
		}
	}
}

func TestNodeSelectorTerms_AreTheAffinityOfTheNodes(t *testing.T) {
	terms := []core.NodeSelectorTerm{
		{MatchExpressions: []core.NodeSelectorRequirement{{Key: "storage", Operator: core.NodeSelectorOpGt, Values: []string{"3"}}}},
		{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{"a"}}}},
	}
	in := ask(func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = terms })
	affinity := nodeOf(t, in).Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		t.Fatal("there is none")
	}
	same(t, terms, affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	if got := nodeOf(t, ask(nil)).Spec.Template.Spec.Affinity; got != nil {
		t.Errorf("unasked there is %+v", got)
	}
	if got := controllerOf(t, in).Spec.Template.Spec.Affinity; got != nil {
		t.Errorf("the controller, which stores nothing, has %+v", got)
	}
}

func TestNode_TakesAsManyVolumesAsRequested(t *testing.T) {
	const argument = "--max-volumes-per-node="
	limits := func(in Input) (found []string) {
		for _, a := range container(&nodeOf(t, in).Spec.Template.Spec, name).Args {
			if strings.HasPrefix(a, argument) {
				found = append(found, a)
			}
		}
		return found
	}
	if got := limits(ask(nil)); len(got) > 0 {
		t.Errorf("unasked there is %v", got)
	}
	if got := limits(ask(func(s *v1beta1.StorageClusterSpec) { s.CSI.MaxVolumesPerNode = 7 })); !slices.Equal(got, []string{argument + "7"}) {
		t.Errorf("got %v", got)
	}
}

func TestNode_KubeletDirectoryIsTheSameEverywhere(t *testing.T) {
	in := everything()
	in.Cluster.Spec.CSI.KubeletDir = "/data/kubelet"
	pod := nodeOf(t, in).Spec.Template.Spec
	content, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "/var/lib/kubelet") {
		t.Errorf("another directory is in %s", content)
	}
	for _, want := range []struct{ container, argument string }{
		{"holdfast", "--endpoint=unix:///data/kubelet/plugins/csi.holdfast.dev/csi.sock"},
		{"csi-node-driver-registrar", "--kubelet-registration-path=/data/kubelet/plugins/csi.holdfast.dev/csi.sock"},
	} {
		if args := arguments(t, pod, want.container); !slices.Contains(args, want.argument) {
			t.Errorf("the arguments of %s are %v", want.container, args)
		}
	}
	in.Cluster.Spec.Images = v1beta1.Images{}
	pod = nodeOf(t, in).Spec.Template.Spec
	if args := arguments(t, pod, "holdfast"); !slices.Contains(args, "--kubelet-registration-dir=/data/kubelet/plugins_registry") {
		t.Errorf("the arguments are %v", args)
	}
	if _, mounted := hostPaths(t, pod)["/data/kubelet"]; !mounted {
		t.Error("it is not mounted")
	}
}

func TestNode_RegistrarAndProbeSidecarsReplaceTheDriversOwn(t *testing.T) {
	for name, test := range map[string]struct {
		images     v1beta1.Images
		containers []string
		volumes    []string
	}{
		"none":      {v1beta1.Images{}, []string{"holdfast"}, nil},
		"registrar": {v1beta1.Images{CSINodeDriverRegistrar: "r/n:1"}, []string{"holdfast", "csi-node-driver-registrar"}, []string{"plugin", "registry"}},
		"probe":     {v1beta1.Images{CSILivenessProbe: "r/l:1"}, []string{"holdfast", "livenessprobe"}, []string{"plugin"}},
		"both":      {v1beta1.Images{CSINodeDriverRegistrar: "r/n:1", CSILivenessProbe: "r/l:1"}, []string{"holdfast", "csi-node-driver-registrar", "livenessprobe"}, []string{"plugin", "registry"}},
	} {
		set := nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Images = test.images }))
		pod := set.Spec.Template.Spec
		if got := names(pod.Containers); !slices.Equal(got, test.containers) {
			t.Errorf("%s: the containers are %v", name, got)
		}
		registers := !slices.Contains(arguments(t, pod, "holdfast"), "--register-driver=false")
		if lends := arguments(t, pod, "holdfast"); !slices.Contains(lends, "--kubelet-registration-dir=/var/lib/kubelet/plugins_registry") {
			t.Errorf("%s: loop devices are allocated by way of %v", name, lends)
		}
		if registers != (test.images.CSINodeDriverRegistrar == "") {
			t.Errorf("%s: the driver registers itself: %v", name, registers)
		}
		alive := container(&pod, "holdfast").LivenessProbe.HTTPGet
		if want := map[bool]string{true: "metrics/livez", false: "9808/healthz"}[test.images.CSILivenessProbe == ""]; alive.Port.String()+alive.Path != want {
			t.Errorf("%s: the driver is probed at %s%s, not %s", name, alive.Port.String(), alive.Path, want)
		}
		var volumes []string
		for _, v := range pod.Volumes {
			if v.Name == "plugin" || v.Name == "registry" {
				volumes = append(volumes, v.Name)
			}
		}
		if !slices.Equal(volumes, test.volumes) {
			t.Errorf("%s: the volumes are %v", name, volumes)
		}
		for _, c := range pod.Containers[1:] {
			if c.Image != "r/"+map[string]string{"csi-node-driver-registrar": "n", "livenessprobe": "l"}[c.Name]+":1" {
				t.Errorf("%s: %s has the image %s", name, c.Name, c.Image)
			}
		}
		if got := set.Spec.Template.Annotations["kubectl.kubernetes.io/default-container"]; (got == "holdfast") != (len(test.containers) > 1) {
			t.Errorf("%s: kubectl looks at %q first", name, got)
		}
	}
}

func TestNode_MayBePrivilegedOnOpenShift(t *testing.T) {
	for distro, want := range map[string]bool{"openshift": true, "OpenShift-4.20": true, "okd": true, "": false, "eks": false} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = distro })
		in.Has = noKind
		role := look[rbac.Role](t, in, "Role", "holdfast-node-scc")
		binding := look[rbac.RoleBinding](t, in, "RoleBinding", "holdfast-node-scc")
		if (role != nil) != want || (binding != nil) != want {
			t.Errorf("%q: %v %v", distro, role, binding)
			continue
		}
		if want && (role.Rules[0].ResourceNames[0] != "privileged" || role.Rules[0].Verbs[0] != "use" || len(role.Rules) != 1 ||
			binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != "holdfast-node" || binding.Subjects[0].Namespace != testNamespace) {
			t.Errorf("%q: %+v %+v", distro, role, binding)
		}
	}
	if look[rbac.Role](t, ask(nil), "Role", "holdfast-node-scc") == nil {
		t.Error("a cluster that has the constraints gets none unless it is named")
	}
}

func TestNode_RightsAreBoundToItsAccount(t *testing.T) {
	in := ask(nil)
	must[core.ServiceAccount](t, in, "ServiceAccount", "holdfast-node")
	for kind, role := range map[string]string{"ClusterRoleBinding": "ClusterRole", "RoleBinding": "Role"} {
		binding := must[rbac.RoleBinding](t, in, kind, "holdfast-node")
		same(t, []rbac.Subject{{Kind: "ServiceAccount", Name: "holdfast-node", Namespace: testNamespace}}, binding.Subjects)
		same(t, rbac.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: role, Name: "holdfast-node"}, binding.RoleRef)
		must[rbac.Role](t, in, role, "holdfast-node")
	}
}

// NFS servers need loop devices of their nodes, whichever node mounts their volumes.
func TestNode_WithoutCSIOnlyLendsLoopDevices(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.CSI = v1beta1.CSISpec{Enabled: new(false), Credentials: v1beta1.CSICredentials{Provision: true}, KubeletDir: "/data/kubelet"}
		s.Debug = true
		s.Distribution = "openshift"
		s.Images.Holdfast = "example.com/holdfast:v7"
		s.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpExists}}}}
	})
	want := []string{
		"Deployment holdfast-controller", "PodMonitor holdfast", "Service holdfast",
		"DaemonSet holdfast-loop-sets", "Role holdfast-loop-sets-scc", "RoleBinding holdfast-loop-sets-scc", "ServiceAccount holdfast-loop-sets",
		"ClusterRole holdfast-loop-sets", "ClusterRoleBinding holdfast-loop-sets",
	}
	for _, key := range keys(rendered(t, in)) {
		if !slices.Contains(want, key) && !strings.HasPrefix(key, "ValidatingAdmissionPolicy") {
			t.Errorf("there is %s", key)
		}
	}
	for kind, name := range map[string]string{"RoleBinding": "holdfast-loop-sets-scc", "ClusterRoleBinding": "holdfast-loop-sets"} {
		same(t, []rbac.Subject{{Kind: "ServiceAccount", Name: "holdfast-loop-sets", Namespace: testNamespace}}, must[rbac.RoleBinding](t, in, kind, name).Subjects)
	}
	pod := must[apps.DaemonSet](t, in, "DaemonSet", "holdfast-loop-sets").Spec.Template.Spec
	same(t, in.Cluster.Spec.NodeSelectorTerms, pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	if c := container(&pod, "holdfast"); c.Image != "example.com/holdfast:v7" || !slices.Contains(c.Args, "--kubelet-registration-dir=/data/kubelet/plugins_registry") || !slices.Contains(c.Args, "--log-level=debug") {
		t.Errorf("it runs %s with %v", c.Image, c.Args)
	}
	if _, mounted := hostPaths(t, pod)["/data/kubelet/plugins_registry"]; !mounted || pod.AutomountServiceAccountToken != nil {
		t.Errorf("the directory is mounted: %t; whether it may ask the API server for the policy is said to be %v", mounted, pod.AutomountServiceAccountToken)
	}
}
