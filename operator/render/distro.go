package render

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// usualKubeletDir is the default of the kubelet's --root-dir, and that of the manifests.
const usualKubeletDir = "/var/lib/kubelet"

// distribution is known by a word in its name, and has its kubelet's directory.
type distribution struct{ word, kubeletDir string }

var distributions = []distribution{
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

// KubeletDir returns that of the DaemonSet that runs, which is left as it is, or else that of most kubelets, as far as their Nodes
// show it: one node may say anything about itself. Empty means that it is not known.
func KubeletDir(runs *unstructured.Unstructured, nodes []*core.Node) string {
	if runs != nil {
		volumes, _, _ := unstructured.NestedSlice(runs.Object, "spec", "template", "spec", "volumes")
		for _, v := range volumes {
			volume, _ := v.(map[string]any)
			dir, _, _ := unstructured.NestedString(volume, "hostPath", "path")
			if volume["name"] == "kubelet" && slices.ContainsFunc(distributions, func(d distribution) bool { return d.kubeletDir == dir }) {
				return dir
			}
		}
	}
	count := map[string]int{}
	for _, n := range nodes {
		count[KubeletDirOf(n)]++
	}
	for dir, n := range count {
		if 2*n > len(nodes) {
			return dir
		}
	}
	return ""
}

// KubeletDirOf is known of distributions that show in a Node.
func KubeletDirOf(n *core.Node) string {
	version := n.Status.NodeInfo.KubeletVersion
	_, microk8s := n.Labels["microk8s.io/cluster"]
	switch {
	case microk8s:
		return "/var/snap/microk8s/common/var/lib/kubelet"
	case strings.Contains(version, "+k0s"):
		return "/var/lib/k0s/kubelet"
	case strings.Contains(version, "+k3s"), strings.Contains(version, "+rke2"), strings.Contains(n.Status.NodeInfo.OSImage, "Talos"):
		return usualKubeletDir
	}
	return ""
}

// kubeletDir is what the spec says, or else what was found.
func kubeletDir(spec v1beta1.StorageClusterSpec, found string) (string, error) {
	dir, err := distroKubeletDir(spec.Distribution)
	switch {
	case err != nil:
		return "", err
	case spec.CSI.KubeletDir != "":
		return spec.CSI.KubeletDir, nil
	case spec.Distribution == "" && found != "":
		return found, nil
	}
	return dir, nil
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
