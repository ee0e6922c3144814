package deploy

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestContainers_ProgramAcceptsItsArguments(t *testing.T) {
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
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
	modules, err := os.ReadFile(root + "/test/cluster/sidecars/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]string{}
	for _, program := range regexp.MustCompile(`(?m)^\t(github.com/kubernetes-csi/\S+)/cmd/(\S+)$`).FindAllSubmatch(modules, -1) {
		version := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(string(program[1])) + ` (\S+)`).FindSubmatch(modules)
		if version == nil {
			t.Fatalf("no version of %s", program[1])
		}
		tested[string(program[2])] = string(version[1])
	}
	read := func(file string) Objects {
		t.Helper()
		objects, err := Read("deploy/operated/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	seen, ways := map[string]bool{}, map[string]Objects{
		"the manifest": installations(t)[manifest],
		"beside":       read("sidecars"),
		"of snapshots": read("snapshot-controller"),
	}
	for name, objects := range ways {
		for key, container := range containers(t, objects) {
			if version, known := tested[container.Name]; known {
				seen[container.Name] = true
				if want := "registry.k8s.io/sig-storage/" + container.Name + ":" + version; container.Image != want {
					t.Errorf("%s: %s has the image %s, tested is %s", name, key, container.Image, want)
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
			case security.Privileged != nil && *security.Privileged,
				security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation,
				security.Capabilities == nil || !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}):
				t.Errorf("%s: %s may do more than it needs: %+v", name, key, security)
			}
			if container.Resources.Requests.Cpu().IsZero() || container.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: %s asks for nothing, and would be the first to go", name, key)
			}
		}
	}
}

func TestContainers_ControllerIsNotRoot(t *testing.T) {
	for name, objects := range installations(t) {
		for key, object := range objects {
			if object.GetKind() != "Deployment" && object.GetKind() != "StatefulSet" {
				continue
			}
			object.SetKind("Deployment") // of which the same is asked
			deployment := &apps.Deployment{}
			convert(t, object, deployment)
			security := deployment.Spec.Template.Spec.SecurityContext
			if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot ||
				security.SeccompProfile == nil || security.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s is not what Pod Security calls restricted: %+v", name, key, security)
			}
		}
	}
}

// containers returns the containers of all workloads.
func containers(t *testing.T, objects Objects) map[string]core.Container {
	t.Helper()
	all := map[string]core.Container{}
	for key, object := range objects {
		where := []string{"spec", "template"}
		if object.GetKind() == "PodTemplate" {
			where = where[1:]
		}
		template, found, err := unstructured.NestedMap(object.Object, where...)
		if err != nil || !found {
			continue
		}
		pod := &core.PodTemplateSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
			t.Fatal(err)
		}
		for _, container := range pod.Spec.Containers {
			all[key+" "+container.Name] = container
		}
	}
	return all
}
