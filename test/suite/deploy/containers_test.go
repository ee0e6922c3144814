package deploy

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pods are the templates of all workloads.
func pods(t *testing.T, objects Objects) map[string]*core.PodTemplateSpec {
	t.Helper()
	all := map[string]*core.PodTemplateSpec{}
	for key, object := range objects {
		where := []string{"spec", "template"}
		if object.GetKind() == "PodTemplate" {
			where = where[1:]
		}
		template, found, err := unstructured.NestedMap(object.Object, where...)
		if err == nil && found {
			all[key] = as[core.PodTemplateSpec](t, template)
		}
	}
	return all
}

// containers returns the containers of all workloads.
func containers(t *testing.T, objects Objects) map[string]core.Container {
	t.Helper()
	all := map[string]core.Container{}
	for key, pod := range pods(t, objects) {
		for _, container := range pod.Spec.Containers {
			all[key+" "+container.Name] = container
		}
	}
	return all
}

func TestContainers_ProgramAcceptsItsArguments(t *testing.T) {
	binary := must(program())(t)
	ways, taken := installations(t), 0
	for name, objects := range ways {
		for key, container := range containers(t, objects) {
			if container.Name != "holdfast" {
				continue
			}
			taken++
			// All that comes before --help is read, and nothing is done.
			if out, err := exec.Command(binary, append(container.Args, "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v: %s", name, key, err, out)
			}
		}
	}
	if taken < len(ways) {
		t.Errorf("only %d containers were tried", taken)
	}
	if exec.Command(binary, "node", "--no-such-flag", "--help").Run() == nil {
		t.Error("the program takes anything")
	}
}

// What the tests of the cluster run beside the driver is what users get.
func TestContainers_SidecarsAreTheTestedOnes(t *testing.T) {
	modules := read(t, "test/cluster/sidecars/go.mod")
	tested := map[string]string{}
	for _, program := range regexp.MustCompile(`(?m)^\t(github.com/kubernetes-csi/\S+)/cmd/(\S+)$`).FindAllStringSubmatch(modules, -1) {
		version := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(program[1]) + ` (\S+)`).FindStringSubmatch(modules)
		if version == nil {
			t.Fatalf("no version of %s", program[1])
		}
		tested[program[2]] = version[1]
	}
	seen := map[string]bool{}
	for _, file := range []string{manifest, "deploy/operated/sidecars.yaml", "deploy/operated/snapshot-controller.yaml"} {
		for key, container := range containers(t, parse(t, read(t, file))) {
			if version, known := tested[container.Name]; known {
				seen[container.Name] = true
				if want := "registry.k8s.io/sig-storage/" + container.Name + ":" + version; container.Image != want {
					t.Errorf("%s: %s has the image %s, tested is %s", file, key, container.Image, want)
				}
			}
		}
	}
	if !maps.Equal(seen, map[string]bool{"csi-provisioner": true, "csi-resizer": true, "csi-snapshotter": true, "csi-attacher": true, "snapshot-controller": true}) {
		t.Errorf("compared were only %v", slices.Sorted(maps.Keys(seen)))
	}
}

func TestContainers_OnlyNodePodsArePrivileged(t *testing.T) {
	for name, objects := range installations(t) {
		for key, container := range containers(t, objects) {
			security := container.SecurityContext
			switch {
			case security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem:
				t.Errorf("%s: %s may write to its image", name, key)
			case strings.HasPrefix(key, "DaemonSet") && container.Name == "holdfast":
			case !unprivileged(security):
				t.Errorf("%s: %s may do more than it needs: %+v", name, key, security)
			}
			if container.Resources.Requests.Cpu().IsZero() || container.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: %s asks for nothing, and would be the first to go", name, key)
			}
		}
		for key, pod := range pods(t, objects) {
			ofController := strings.HasPrefix(key, "Deployment ") || strings.HasPrefix(key, "StatefulSet ")
			if ofController && !restricted(pod.Spec.SecurityContext) {
				t.Errorf("%s: %s is not what Pod Security calls restricted: %+v", name, key, pod.Spec.SecurityContext)
			}
		}
	}
}

func restricted(pod *core.PodSecurityContext) bool {
	return pod != nil && pod.RunAsNonRoot != nil && *pod.RunAsNonRoot &&
		pod.SeccompProfile != nil && pod.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault
}

func unprivileged(c *core.SecurityContext) bool {
	return (c.Privileged == nil || !*c.Privileged) && c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation &&
		c.Capabilities != nil && slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"})
}
