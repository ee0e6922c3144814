package accidents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// directory is the pool of the home node.
func (p *precious) directory() string { return filepath.Join(p.Pools(), "default") }

// replaced mounts something else where the pool is, so that it is as if the pool's own disk had not been mounted when the
// agent was started, until back is called. An agent that runs has the pool open, and goes on with it.
func (p *precious) replaced(fill func(dir string)) (back func()) {
	p.t.Helper()
	dir := p.directory()
	check.OK(p.t, unix.Mount("none", dir, "tmpfs", 0, "mode=755"))
	back = sync.OnceFunc(func() {
		p.do(unix.Unmount(dir, unix.MNT_DETACH))
		// Not every kernel lets even a privileged container look at what the first process of the host sees.
		if ns, err := os.Open("/proc/1/ns/mnt"); err != nil {
			p.t.Logf("the agent is restarted, since it cannot see by itself what is mounted again: %v", err)
			p.startAgent()
		} else {
			p.do(ns.Close())
		}
	})
	p.t.Cleanup(back)
	fill(dir)
	p.startAgent()
	return back
}

// startAgent restarts the agent of the home node in another pod: the kubelet waits longer each time with a container that
// was killed.
func (p *precious) startAgent() {
	p.t.Helper()
	p.ReplaceNodePod(p.NodePod(p.Home, ""))
}

func (p *precious) do(err error) {
	p.t.Helper()
	check.Report(p.t, err)
}

// poolIs waits until the home node reports that its pool has a reason, "" for none.
func (p *precious) poolIs(reason string) (message string) {
	p.t.Helper()
	kube.AwaitOne(p.Space, p.Holdfast("storagenodes"), p.Home, "to have a pool with the reason "+reason, func(o *unstructured.Unstructured) (bool, error) {
		n := &v1beta1.StorageNode{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, n); err != nil {
			return false, err
		}
		message = n.Status.Pools[0].Message
		return n.Status.Pools[0].Reason == reason && (reason == "") == (message == ""), nil
	})
	return message
}

// older is the state of a pool before it was opened last.
func (p *precious) older(file string) []byte {
	p.t.Helper()
	content, err := os.ReadFile(file)
	p.do(err)
	var state map[string]any
	p.do(json.Unmarshal(content, &state))
	generation, _ := state["generation"].(float64)
	if generation < 1 {
		p.t.Fatalf("the pool was never opened: %s", content)
	}
	state["generation"] = generation - 1
	content, err = json.Marshal(state)
	p.do(err)
	return content
}

// phase waits until volumes have one.
func (p *precious) phase(volumes []string, phase v1beta1.Phase) {
	p.t.Helper()
	for _, name := range volumes {
		kube.AwaitOne(p.Space, p.Holdfast("volumes"), name, "to be "+string(phase), func(o *unstructured.Unstructured) (bool, error) {
			is, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			return is == string(phase), nil
		})
	}
}

// cluster waits for the phase of the StorageCluster and returns the message of a condition.
func (p *precious) cluster(phase v1beta1.ClusterPhase, condition string) (message string) {
	p.t.Helper()
	kube.AwaitOne(p.Space, p.Holdfast("storageclusters"), clusterName, "to be "+string(phase), func(o *unstructured.Unstructured) (bool, error) {
		c := &v1beta1.StorageCluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c); err != nil {
			return false, err
		}
		for _, one := range c.Status.Conditions {
			if one.Type == condition {
				message = one.Message
			}
		}
		return c.Status.Phase == phase, nil
	})
	return message
}

// out checks a node whose pool is not there: nothing is begun in its place, nothing is lost, nothing new lands there.
func (p *precious) out(reason string, kill func()) {
	p.t.Helper()
	message := p.poolIs(reason)
	if !strings.Contains(message, p.directory()) || !strings.Contains(message, "replacePools") {
		p.t.Errorf("the pool says %q", message)
	}
	volumes := p.volumes(idle, used, raw)
	p.phase(volumes, v1beta1.PhaseUnreachable)
	if says := p.cluster(v1beta1.ClusterDegraded, v1beta1.DegradedCondition); !strings.Contains(says, "nreachable") {
		p.t.Errorf("the StorageCluster says %q", says)
	}
	kill()
	p.poolIs(reason)
	p.Claim("waits", "16Mi")
	p.Pod("waits", kube.Mount("waits", "/data"))
	p.AwaitEvent("waits", "FailedScheduling")
	for _, name := range volumes {
		v, err := objects.Volumes().Get(p.t.Context(), name, metav1.GetOptions{})
		if err != nil || v.Status.Phase != v1beta1.PhaseUnreachable {
			p.t.Errorf("volume %s is %s, %v", name, v.Status.Phase, err)
		}
	}
}

// healed checks that all is as it was without anybody's help.
func (p *precious) healed() {
	p.t.Helper()
	p.poolIs("")
	p.phase(p.volumes(idle, used, raw), v1beta1.PhaseReady)
	p.cluster(v1beta1.ClusterRunning, v1beta1.DegradedCondition)
	p.Ready("waits")
	p.DeletePod("waits")
	p.DeleteClaim("waits")
}

func TestPool_WhoseDiskIsNotMountedIsNotRecreatedAndHealsByItself(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		back := p.replaced(func(string) {})
		p.out(v1beta1.ReasonNotMounted, kill)
		if entries, err := os.ReadDir(p.directory()); err != nil || len(entries) > 0 {
			p.t.Errorf("in the empty directory there is %v, %v", entries, err)
		}
		back()
		p.healed()
	})
}

func TestPool_InWhosePlaceAnotherOneIsServesNothingAndHealsByItself(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		const other = `{"version": 1, "uuid": "OF-ANOTHER-POOL", "engine": "image"}`
		back := p.replaced(func(dir string) {
			p.do(os.WriteFile(filepath.Join(dir, "pool.json"), []byte(other), 0o600))
		})
		p.out(v1beta1.ReasonWrongPool, kill)
		if now, err := os.ReadFile(filepath.Join(p.directory(), "pool.json")); err != nil || string(now) != other {
			p.t.Errorf("the other pool was changed: %s, %v", now, err)
		}
		back()
		p.healed()
	})
}

// As where a disk is put back from an image of it that is older than what was written since.
func TestPool_InWhosePlaceAnOlderCopyOfItIsServesNothingAndHealsByItself(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		file := filepath.Join(p.directory(), "pool.json")
		older := p.older(file)
		back := p.replaced(func(dir string) {
			p.do(os.WriteFile(filepath.Join(dir, "pool.json"), older, 0o600))
		})
		p.out(v1beta1.ReasonWrongPool, kill)
		if now, err := os.ReadFile(file); err != nil || string(now) != string(older) {
			p.t.Errorf("the older copy was changed: %s, %v", now, err)
		}
		back()
		p.healed()
	})
}

func TestPool_AnEmptyDirectoryInItsPlaceLetsNoVolumeBeForgotten(t *testing.T) {
	p := keep(t, begin(t))
	name := p.volumes(idle)[0]
	back := p.replaced(func(string) {})
	p.poolIs(v1beta1.ReasonNotMounted)
	p.phase([]string{name}, v1beta1.PhaseUnreachable)
	claims := p.Client.CoreV1().PersistentVolumeClaims(p.Namespace)
	check.OK(t, claims.Delete(t.Context(), idle, metav1.DeleteOptions{}))
	delete(p.sums, idle)
	kube.AwaitNone(p.Space, claims, kube.Named(idle), "the claim")
	p.phase([]string{name}, v1beta1.PhaseDeleting)
	back()
	kube.AwaitNone(p.Space, p.Holdfast("volumes"), kube.Named(name), "volume "+name)
	kube.AwaitNone(p.Space, p.Client.CoreV1().PersistentVolumes(), kube.Named(name), "its PersistentVolume")
	p.intact(t.Name())
}

func TestSpec_AChangeThatWouldHideVolumesIsRefusedWithTheirNumber(t *testing.T) {
	p := keep(t, begin(t))
	c := check.Got(objects.StorageClusters().Get(t.Context(), clusterName, metav1.GetOptions{}))(t)
	path := c.Spec.Pools[0].Path
	p.killing(func(p *precious, kill func()) {
		const held = `pool default holds [0-9]+ volumes and [0-9]+ snapshots`
		for name, change := range map[string]struct{ patch, says string }{
			"another path":   {`{"spec":{"pools":[{"name":"default","path":"/srv/elsewhere"}]}}`, held + " on .*" + p.Home},
			"another name":   {`{"spec":{"pools":[{"name":"fast","path":"` + path + `"}]}}`, held + " on .*" + p.Home},
			"another engine": {`{"spec":{"pools":[{"name":"default","path":"` + path + `","engine":"Directory"}]}}`, held + " on .*" + p.Home},
			"no such pool":   {`{"spec":{"pools":[{"name":"other","path":"/srv/other"}]}}`, held + " on .*" + p.Home},
			"no node":        {`{"spec":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"missing","operator":"Exists"}]}]}}`, "node " + p.Home + " holds volumes .*" + held},
			"without CSI":    {`{"spec":{"csi":{"enabled":false}}}`, held + " on .*" + p.Home},
		} {
			out, err := cluster.Kubectl(p.t, "patch", "storagecluster", clusterName, "--type=merge", "-p", change.patch)
			if err == nil || !regexp.MustCompile(change.says).MatchString(out) {
				p.t.Errorf("%s: %v: %s", name, err, out)
			}
		}
		kill()
		p.cluster(v1beta1.ClusterRunning, v1beta1.DegradedCondition)
	})
}

func TestValues_InDaysAreReadByEveryController(t *testing.T) {
	p := keep(t, begin(t))
	c := check.Got(objects.StorageClusters().Get(t.Context(), clusterName, metav1.GetOptions{}))(t)
	pool := `{"name":"default","path":"` + c.Spec.Pools[0].Path + `","reserved":"` + c.Spec.Pools[0].Reserved + `"`
	t.Cleanup(func() {
		cluster.MustKubectl(t, "patch", "storagecluster", clusterName, "--type=merge", "-p", `{"spec":{"pools":[`+pool+`}]}}`)
	})
	cluster.MustKubectl(t, "patch", "storagecluster", clusterName, "--type=merge", "-p", `{"spec":{"pools":[`+pool+`,"trashRetention":"7d"}]}}`)
	job := filepath.Join(t.TempDir(), "job.yaml")
	p.do(os.WriteFile(job, []byte("apiVersion: holdfast.dev/v1beta1\nkind: NodeJob\nmetadata: {name: a-day}\nspec: {timeout: 1d, image: \"busybox:1\", command: [\"true\"]}\n"), 0o600))
	cluster.MustKubectl(t, "create", "-f", job)
	t.Cleanup(func() { cluster.MustKubectl(t, "delete", "nodejob", "a-day") })
	kube.AwaitOne(p.Space, p.Holdfast("nodejobs"), "a-day", "to be complete", func(o *unstructured.Unstructured) (bool, error) {
		j := &v1beta1.NodeJob{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, j)
		for _, one := range j.Status.Conditions {
			if one.Type == v1beta1.CompleteCondition && one.Status == metav1.ConditionStatus(corev1.ConditionTrue) {
				return true, err
			}
		}
		return false, err
	})
	for _, value := range []string{"7 days", "-1d", "1y", "d"} {
		if out, err := cluster.Kubectl(t, "patch", "storagecluster", clusterName, "--type=merge", "-p", `{"spec":{"pools":[`+pool+`,"trashRetention":"`+value+`"}]}}`); err == nil || !strings.Contains(out, "7d") {
			t.Errorf("%s: %v: %s", value, err, out)
		}
	}
	p.intact(t.Name())
}
