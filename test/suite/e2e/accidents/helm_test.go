package accidents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// helm runs the real one on the release holdfast, as the administrator does.
func (p *precious) helm(verb string, args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), 2*kube.Patience)
	defer cancel()
	args = append([]string{"tool", "helm", verb, "holdfast", "--namespace", kube.System}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root + "/test/suite/deploy" // whose module has Helm
	home := filepath.Join(p.t.TempDir(), "helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	p.t.Logf("helm %s: %v\n%s", strings.Join(args[2:], " "), err, out)
	if err != nil {
		p.t.Fatalf("helm %s: %v: %s", verb, err, out)
	}
}

// values writes what the chart is given: the spec of the StorageCluster that the cluster was installed with, and more.
func (p *precious) values(more map[string]any) string {
	p.t.Helper()
	content, err := os.ReadFile(file("storagecluster.yaml"))
	check.OK(p.t, err)
	o := unstructured.Unstructured{}
	check.OK(p.t, yaml.Unmarshal(content, &o.Object))
	spec := o.Object["spec"].(map[string]any)
	image := spec["images"].(map[string]any)["holdfast"].(string)
	delete(spec, "images")
	maps.Copy(spec, more)
	tag := strings.LastIndexByte(image, ':')
	if content, err = yaml.Marshal(map[string]any{"cluster": spec, "image": map[string]any{"repository": image[:tag], "tag": image[tag+1:]}}); err != nil {
		p.t.Fatal(err)
	}
	path := filepath.Join(p.t.TempDir(), "values.yaml")
	p.do(os.WriteFile(path, content, 0o600))
	return path
}

// kept says that the objects of volumes are the same ones as before.
func (p *precious) kept(before map[string]types.UID) {
	p.t.Helper()
	if now := p.uids(slices.Collect(maps.Keys(before))); !maps.Equal(now, before) {
		p.t.Errorf("the objects of volumes were %v and are %v", before, now)
	}
}

// chart is a copy of the chart, of which a test may change the files.
type chart string

func (p *precious) chart() chart {
	p.t.Helper()
	dir := p.t.TempDir()
	p.do(os.CopyFS(dir, os.DirFS(root+"/deploy/chart")))
	return chart(dir)
}

// change replaces text in a file of the chart.
func (c chart) change(p *precious, file, old, now string) {
	p.t.Helper()
	path := filepath.Join(string(c), file)
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), old) {
		p.t.Fatalf("%s has no %q, %v", file, old, err)
	}
	p.do(os.WriteFile(path, []byte(strings.ReplaceAll(string(content), old, now)), 0o600))
}

// kind is the definition of StorageCluster: that it is there, and the description that the release gives it.
func (p *precious) kind() (uid, description string) {
	p.t.Helper()
	out := cluster.MustKubectl(p.t, "get", "crd", "storageclusters.holdfast.dev", "-o", "jsonpath={.metadata.uid} {.spec.versions[0].schema.openAPIV3Schema.description}")
	uid, description, _ = strings.Cut(out, " ")
	return uid, description
}

// The whole life of a release of the chart, with volumes in it: with Helm 4's server-side apply and without
// --force-conflicts. It begins where the manifest was, and ends with that.
func TestHelm_InstallUpgradeRollbackAndUninstallLoseNothing(t *testing.T) {
	hostfs.Long(t)
	p := keep(t, begin(t)).keepShared()
	c := p.chart()
	before := p.uids(p.volumes(idle, used, raw, shared, plain))
	waiting := []string{"--wait", "--timeout=10m"} // until kstatus says that all is current
	installed := func(p *precious, args ...string) {
		p.helm("install", slices.Concat([]string{string(c), "--values", p.values(nil)}, waiting, args)...)
		p.isReady()
		p.install()
	}
	// What kubectl has applied is merged on the client's side, where nothing conflicts; and so are later changes.
	p.sub("take over", func(p *precious) {
		installed(p, "--take-ownership", "--server-side=false")
		p.helm("upgrade", string(c), "--values", p.values(map[string]any{"debug": true}))
		p.install()
		p.helm("rollback", "1")
		p.install()
		p.helm("uninstall", "--wait")
		kube.AwaitNone(p.Space, p.Client.AppsV1().Deployments(kube.System), kube.Named("holdfast-controller"), "the controller")
		p.forgetManagers()
		installed(p)
		d, err := p.Client.AppsV1().Deployments(kube.System).Get(p.t.Context(), "holdfast-controller", metav1.GetOptions{})
		if err != nil || d.Annotations["deployment.kubernetes.io/revision"] != "1" {
			p.t.Errorf("the operator has changed what Helm made: %v, %v", d.Annotations, err)
		}
	})
	uid, as := p.kind()
	const changed = "StorageCluster of another release"
	p.sub("upgrade of a kind", func(p *precious) {
		other := p.chart()
		other.change(p, "crds/holdfast.dev_storageclusters.yaml", "StorageCluster is Holdfast in this cluster", changed)
		p.helm("upgrade", string(other), "--values", p.values(nil))
		if same, now := p.kind(); same != uid || !strings.Contains(now, changed) {
			p.t.Errorf("the kind is %s, described as %q", same, now)
		}
		p.install()
	})
	p.sub("upgrade", func(p *precious) {
		p.helm("upgrade", string(c), "--values", p.values(map[string]any{"debug": true}),
			"--set", "controller.podLabels.team=storage", "--set", "controller.extraArgs[0]=--log-format=json", waiting[0], waiting[1])
		p.isReady()
		p.install()
		p.controllerHas("storage", "--log-format=json")
	})
	p.sub("upgrade after the operator has repaired", func(p *precious) {
		cluster.MustKubectl(p.t, "-n", kube.System, "delete", "deployment", "holdfast-controller")
		p.install()
		p.helm("upgrade", string(c), "--values", p.values(nil), "--set", "controller.podLabels.team=compute")
		p.install()
		p.controllerHas("compute", "--namespace=$(NAMESPACE)")
	})
	p.sub("test", func(p *precious) {
		p.helm("test")
		p.Eventually(p.t.Context(), "nothing of the test to be left", func(ctx context.Context) error {
			out, err := cluster.Kubectl(p.t, "-n", kube.System, "get", "pods,pvc", "-l", "app.kubernetes.io/component=test", "-o", "name")
			if claims, err := p.Client.CoreV1().PersistentVolumeClaims(kube.System).List(ctx, metav1.ListOptions{}); err != nil || len(claims.Items) > 0 {
				return fmt.Errorf("there are %d claims, %w", len(claims.Items), err)
			}
			if err == nil && strings.TrimSpace(out) != "" {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
	})
	p.sub("rollback", func(p *precious) {
		p.helm("rollback", "1")
		p.install()
		if same, now := p.kind(); same != uid || now != as {
			p.t.Errorf("the kind is %s, described as %q", same, now)
		}
		if c, err := objects.StorageClusters().Get(p.t.Context(), clusterName, metav1.GetOptions{}); err != nil || c.Spec.Debug || len(c.Spec.Controller.PodLabels) > 0 {
			p.t.Errorf("the StorageCluster is as it was upgraded, %v", err)
		}
	})
	p.sub("uninstall", func(p *precious) {
		p.helm("uninstall", "--wait")
		kube.AwaitNone(p.Space, p.Client.AppsV1().Deployments(kube.System), kube.Named("holdfast-controller"), "the controller")
		kills["the agent"](p.Space)
		if c, err := objects.StorageClusters().Get(p.t.Context(), clusterName, metav1.GetOptions{}); err != nil || c.DeletionTimestamp != nil {
			p.t.Errorf("the StorageCluster goes with the release, %v", err)
		}
		if same, _ := p.kind(); same != uid {
			p.t.Error("the kind went with the release")
		}
		p.kept(before)
		installed(p)
		p.kept(before)
	})
	p.sub("uninstall, and the manifest", func(p *precious) {
		p.helm("uninstall", "--wait")
		p.install("install.yaml", "storagecluster.yaml")
		p.kept(before)
	})
}

// isReady says that the StorageCluster is ready as its spec is now, without waiting for it.
func (p *precious) isReady() {
	p.t.Helper()
	c := check.Got(objects.StorageClusters().Get(p.t.Context(), clusterName, metav1.GetOptions{}))(p.t)
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ReadyCondition); ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != c.Generation {
		p.t.Errorf("helm --wait has ended, and generation %d of the StorageCluster has %+v", c.Generation, c.Status.Conditions)
	}
}

// controllerHas says that the pods of the controller have a label and an argument that the values gave them.
func (p *precious) controllerHas(team, arg string) {
	p.t.Helper()
	d := check.Got(p.Client.AppsV1().Deployments(kube.System).Get(p.t.Context(), "holdfast-controller", metav1.GetOptions{}))(p.t)
	if pod := d.Spec.Template; pod.Labels["team"] != team || !slices.Contains(pod.Spec.Containers[0].Args, arg) {
		p.t.Errorf("the controller has the labels %v and the arguments %v", pod.Labels, pod.Spec.Containers[0].Args)
	}
}

// forgetManagers removes the managers of what a release leaves, as if Holdfast had been installed by Helm alone.
func (p *precious) forgetManagers() {
	p.t.Helper()
	names := strings.Fields(cluster.MustKubectl(p.t, "get", "crd", "-o", "name"))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".holdfast.dev") })
	for _, name := range append(names, "storagecluster/"+clusterName) {
		o := &unstructured.Unstructured{}
		p.do(json.Unmarshal([]byte(cluster.MustKubectl(p.t, "get", name, "--show-managed-fields", "-o", "json")), &o.Object))
		fields := slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "" })
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": fields}})
		p.do(err)
		cluster.MustKubectl(p.t, "patch", name, "--type=json", "-p", string(patch))
	}
}
