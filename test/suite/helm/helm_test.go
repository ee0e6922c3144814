// Package helm installs the chart with the programs of Helm 3 and 4 at a real API server, without nodes that run it.
package helm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const root = "../../.."

// admin has a cluster without Holdfast.
type admin struct {
	t                *testing.T
	kubeconfig, home string
	module           string // that has Helm as a tool
}

func (a *admin) run(dir, program string, args ...string) (string, error) {
	a.t.Helper()
	ctx := context.WithoutCancel(a.t.Context()) // for what is removed at the end
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+a.kubeconfig, "HELM_CACHE_HOME="+a.home, "HELM_CONFIG_HOME="+a.home, "HELM_DATA_HOME="+a.home)
	out, err := cmd.CombinedOutput()
	a.t.Logf("%s: %v\n%s", strings.Join(args, " "), err, out)
	return string(out), err
}

func (a *admin) must(out string, err error) string {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err, out)
	}
	return out
}

func (a *admin) helm(args ...string) (string, error) {
	a.t.Helper()
	return a.run(filepath.Join(root, a.module), "go", append([]string{"tool", "helm"}, args...)...)
}

func (a *admin) kubectl(args ...string) (string, error) {
	a.t.Helper()
	return a.run(root, filepath.Join(filepath.Dir(a.kubeconfig), "bin", "kubectl"), args...)
}

// team is the label of the controller's pods.
func (a *admin) team(namespace string) string {
	a.t.Helper()
	return a.must(a.kubectl("--namespace", namespace, "get", "deployment", "holdfast-controller", "-o", "jsonpath={.spec.template.metadata.labels.team}"))
}

// kinds are the ones of Holdfast that are there, by name and UID.
func (a *admin) kinds() string {
	a.t.Helper()
	all := a.must(a.kubectl("get", "crd", "-o", `jsonpath={range .items[?(@.spec.group=="holdfast.dev")]}{.metadata.name} {.metadata.uid}{"\n"}{end}`))
	if strings.Count(all, "\n") != 7 {
		a.t.Fatalf("the kinds are %s", all)
	}
	return all
}

func TestHelm_EachVersionInstallsUpgradesAndLeavesTheKinds(t *testing.T) {
	hostfs.Long(t) // both programs are compiled
	name := os.Getenv("HOLDFAST_API")
	if name == "" {
		hostfs.Skip(t, "api", "needs an API server without Holdfast, named in HOLDFAST_API")
	}
	chart := check.Got(filepath.Abs(root + "/deploy/chart"))(t)
	for version, module := range map[string]string{"v3": "test/tool/helm3", "v4": "test/suite/deploy"} {
		t.Run(version, func(t *testing.T) {
			a := &admin{t: t, home: t.TempDir(), module: module}
			out := check.Got(exec.CommandContext(t.Context(), root+"/bin/cluster", "-name", name, "kubeconfig").Output())(t)
			a.kubeconfig = strings.TrimSpace(string(out))
			said := a.must(a.helm("version", "--short")) // after what go has downloaded, the first time
			if lines := strings.Split(strings.TrimSpace(said), "\n"); !strings.HasPrefix(lines[len(lines)-1], version) {
				t.Fatalf("it is Helm %s", said)
			}
			for _, namespace := range []string{"holdfast-system", "elsewhere"} {
				a.must(a.kubectl("create", "namespace", namespace))
				t.Cleanup(func() { a.must(a.kubectl("delete", "namespace", namespace)) })
				a.must(a.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged"))
			}
			t.Cleanup(func() { a.must(a.kubectl("delete", "-k", "deploy/crds", "--ignore-not-found")) })
			t.Cleanup(func() {
				for _, release := range [][]string{{"holdfast", "holdfast-system"}, {"other", "holdfast-system"}, {"holdfast", "elsewhere"}} {
					a.must(a.helm("uninstall", release[0], "--namespace", release[1], "--ignore-not-found"))
				}
			})

			release := []string{"--namespace", "holdfast-system"}
			in := func(args ...string) []string { return append(args, release...) }
			a.must(a.helm(in("install", "holdfast", chart)...))
			if n := strings.Count(a.must(a.helm(in("get", "manifest", "holdfast")...)), "kind: CustomResourceDefinition"); n != 7 {
				a.t.Errorf("the first revision has %d kinds", n)
			}
			kinds := a.kinds()
			a.must(a.helm(in("upgrade", "holdfast", chart, "--set", "controller.podLabels.team=storage")...))
			if got := a.team("holdfast-system"); got != "storage" {
				t.Errorf("after the upgrade the team is %q", got)
			}
			a.must(a.helm(in("rollback", "holdfast", "1")...))
			if got := a.team("holdfast-system"); got != "" {
				t.Errorf("after the rollback the team is %q", got)
			}
			a.must(a.helm(in("uninstall", "holdfast")...))
			if out, err := a.helm(in("install", "other", chart)...); err == nil || !strings.Contains(out, "invalid ownership metadata") {
				t.Errorf("another release takes over the kinds without --take-ownership: %v", err)
			}
			a.must(a.helm(in("install", "other", chart, "--take-ownership")...))
			a.must(a.helm(in("upgrade", "other", chart, "--set", "controller.podLabels.team=compute")...))
			if got := a.team("holdfast-system"); got != "compute" {
				t.Errorf("after the upgrade of another release the team is %q", got)
			}
			a.must(a.helm(in("uninstall", "other")...))
			a.must(a.helm("install", "holdfast", chart, "--namespace", "elsewhere", "--take-ownership"))
			a.must(a.helm("uninstall", "holdfast", "--namespace", "elsewhere"))
			if got := a.kinds(); got != kinds {
				t.Errorf("the kinds were %s and are %s", kinds, got)
			}
		})
	}
}
