package render

import (
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// usualKubeletDir is the default of the kubelet's --root-dir, and that of the manifests.
const usualKubeletDir = "/var/lib/kubelet"

// distributions are known by a word in their name, and have their kubelet's directory.
var distributions = []struct{ word, kubeletDir string }{
	{"k0s", "/var/lib/k0s/kubelet"},
	{"microk8s", "/var/snap/microk8s/common/var/lib/kubelet"},
	{"k3s", usualKubeletDir},
	{"rke2", usualKubeletDir},
	{"talos", usualKubeletDir},
	{openshift, usualKubeletDir},
	{"okd", usualKubeletDir},
	{"aks", usualKubeletDir},
	{"eks", usualKubeletDir},
	{"gke", usualKubeletDir},
	{"kind", usualKubeletDir},
	{"kops", usualKubeletDir},
	{"kubeadm", usualKubeletDir},
	{"kubespray", usualKubeletDir},
	{"minikube", usualKubeletDir},
	{"rancher", usualKubeletDir},
	{"rke", usualKubeletDir},
	{"tanzu", usualKubeletDir},
}

const openshift = "openshift"

func kubeletDir(spec v1beta1.StorageClusterSpec) (string, error) {
	dir, err := distroKubeletDir(spec.Distribution)
	if err == nil && spec.CSI.KubeletDir != "" {
		dir = spec.CSI.KubeletDir
	}
	return dir, err
}

func distroKubeletDir(distro string) (string, error) {
	if distro == "" {
		return usualKubeletDir, nil
	}
	var words []string
	for _, d := range distributions {
		if isDistro(distro, d.word) {
			return d.kubeletDir, nil
		}
		words = append(words, d.word)
	}
	return "", fmt.Errorf("spec.distribution: %.80q is not known: it must contain one of %s, or be empty; with a distribution that is not among them, leave it empty and set spec.csi.kubeletDir", distro, strings.Join(words, ", "))
}

func isDistro(distro, word string) bool { return strings.Contains(strings.ToLower(distro), word) }
