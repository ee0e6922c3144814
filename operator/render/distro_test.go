package render

import (
	"slices"
	"strings"
	"testing"

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

func TestDistribution_UnknownIsNotGuessed(t *testing.T) {
	_, err := Objects(ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = "hal9000" }))
	for _, part := range []string{"spec.distribution", "hal9000", "microk8s", "openshift", "spec.csi.kubeletDir"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}
