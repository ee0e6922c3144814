package render

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestDistribution_HasItsKubeletDirectory(t *testing.T) {
	for distro, want := range map[string]string{
		"":                  "/var/lib/kubelet",
		"k0s":               "/var/lib/k0s/kubelet",
		"k0s-v1.36":         "/var/lib/k0s/kubelet",
		"MicroK8s 1.36":     "/var/snap/microk8s/common/var/lib/kubelet",
		"k3s":               "/var/lib/kubelet",
		"rke2":              "/var/lib/kubelet",
		"talos-v1.12":       "/var/lib/kubelet",
		"openshift-4.20":    "/var/lib/kubelet",
		"Red Hat OpenShift": "/var/lib/kubelet",
	} {
		pod := nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = distro })).Spec.Template.Spec
		if args := arguments(t, pod, "holdfast"); !slices.Contains(args, "--kubelet-registration-dir="+want+"/plugins_registry") {
			t.Errorf("%s: the arguments are %v", distro, args)
		}
		asked := nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = distro; s.CSI.KubeletDir = "/mine" })).Spec.Template.Spec
		if args := arguments(t, asked, "holdfast"); !slices.Contains(args, "--kubelet-registration-dir=/mine/plugins_registry") {
			t.Errorf("%s: what the user says does not count: %v", distro, args)
		}
	}
}

func TestKubeletDir_IsThatOfMostNodes(t *testing.T) {
	of := func(versions ...string) (nodes []*core.Node) {
		for _, v := range versions {
			n := &core.Node{}
			n.Status.NodeInfo.KubeletVersion = v
			nodes = append(nodes, n)
		}
		return nodes
	}
	micro := of("v1.35.0", "v1.35.0")
	for _, n := range micro {
		n.Labels = map[string]string{"microk8s.io/cluster": "true"}
	}
	for _, test := range []struct {
		nodes  []*core.Node
		change func(*v1beta1.StorageClusterSpec)
		want   string
	}{
		{nil, nil, "/var/lib/kubelet"},
		{of("v1.35.0+k0s", "v1.35.0+k0s"), nil, "/var/lib/k0s/kubelet"},
		{of("v1.35.0+k0s", "v1.35.0", "v1.35.0"), nil, "/var/lib/kubelet"}, // one says so of itself
		{of("v1.35.0+k0s", "v1.35.0"), nil, "/var/lib/kubelet"},
		{micro, nil, "/var/snap/microk8s/common/var/lib/kubelet"},
		{micro, func(s *v1beta1.StorageClusterSpec) { s.Distribution = "k3s" }, "/var/lib/kubelet"},
		{micro, func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "/mine" }, "/mine"},
	} {
		in := ask(test.change)
		in.KubeletDir = KubeletDir(nil, test.nodes)
		if args := arguments(t, nodeOf(t, in).Spec.Template.Spec, "holdfast"); !slices.Contains(args, "--kubelet-registration-dir="+test.want+"/plugins_registry") {
			t.Errorf("want %s: the arguments are %v", test.want, args)
		}
	}
	runs := Unstructured(nodeOf(t, ask(nil)))
	if dir := KubeletDir(runs, micro); dir != "/var/lib/kubelet" {
		t.Errorf("where one runs with the usual directory, it becomes %s", dir)
	}
}

func TestDistribution_UnknownIsNotGuessed(t *testing.T) {
	_, err := Objects(ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = "hal9000" }))
	for _, part := range []string{"spec.distribution", "hal9000", "microk8s", "openshift", "spec.csi.kubeletDir"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}
