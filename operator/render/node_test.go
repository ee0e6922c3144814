package render

import (
	"encoding/json"
	"maps"
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
