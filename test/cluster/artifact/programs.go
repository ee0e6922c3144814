package artifact

import "path/filepath"

const (
	kubernetesVersion = "v1.36.3"
	// OldestVersion is the oldest that is supported; oldest/go.mod has it too.
	OldestVersion = "v1.32.13"
)

// OfOldest is what is built of the oldest Kubernetes, in place of the other: its API server, and the scheduler, which lists
// what an older API server does not have.
func OfOldest(module string) []Program {
	version := "k8s.io/component-base/version.git"
	return []Program{{
		Name: "kubernetes-oldest", Module: filepath.Join(module, "oldest"), Package: ".",
		LDFlags: "-X " + version + "Version=" + OldestVersion + " -X " + version + "Major=1 -X " + version + "Minor=32",
		Links:   []string{"kube-apiserver", "kube-scheduler"},
	}}
}

// Programs returns what is built for a cluster from the module of this package.
func Programs(module string) []Program {
	version := "k8s.io/component-base/version.git"
	return []Program{
		{Name: "pause", Module: module, Package: "./pause"},
		{Name: "locker", Module: module, Package: "./locker"},
		{Name: "dns", Module: filepath.Join(module, "dns"), Package: "."},
		{
			Name: "kubernetes", Module: module, Package: "./kubernetes",
			LDFlags: "-X " + version + "Version=" + kubernetesVersion + " -X " + version + "Major=1 -X " + version + "Minor=36",
			Links:   []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"},
		},
	}
}

// GuestPrograms returns what is built for nodes with a kernel of their own.
func GuestPrograms(module string) []Program {
	return []Program{
		{Name: "guest", Module: module, Package: "./guest", With: []string{"./config", "./host"}},
		{Name: "uml-runner", Module: filepath.Join(module, "../.."), Package: "./test/rig/uml/runner", With: []string{"./test/rig/uml/runner/preload"}},
	}
}
