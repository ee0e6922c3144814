package accidents

import (
	"encoding/json"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// secondPool adds a pool on the home node until the test ends, when its namespace is gone: it begins before the namespace.
func secondPool(t *testing.T) {
	t.Helper()
	if cluster == nil {
		kube.SkipWithout(t)
	}
	c := check.Got(objects.StorageClusters().Get(t.Context(), clusterName, metav1.GetOptions{}))(t)
	home := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: cluster.Nodes(t)[:1],
	}}}}
	set := func(pools ...v1beta1.PoolSpec) {
		t.Helper()
		text := check.Got(json.Marshal(map[string]any{"spec": map[string]any{"pools": pools}}))(t)
		cluster.MustKubectl(t, "patch", "storagecluster", clusterName, "--type=merge", "-p", string(text))
	}
	t.Cleanup(func() { set(c.Spec.Pools...) })
	set(append(c.Spec.Pools, v1beta1.PoolSpec{
		Name: "second", Path: filepath.Join(filepath.Dir(c.Spec.Pools[0].Path), "second"), Reserved: "0", Overcommit: "2", NodeSelectorTerms: home,
	})...)
}

// copying begins a copy of the snapshot large into the second pool, and returns its volume while a pod brings the content.
func (p *precious) copying(class, claim string) (volume string) {
	p.t.Helper()
	p.Claim(claim, "1Gi", kube.OfClass(class), kube.From("VolumeSnapshot", "large"))
	p.Pod(claim, kube.Mount(claim, "/data"))
	p.CopyPod("")
	all := check.Got(objects.Volumes().List(p.t.Context(), metav1.ListOptions{}))(p.t)
	for i := range all.Items {
		if all.Items[i].IsBeingPopulated() {
			return all.Items[i].Name
		}
	}
	p.t.Fatal("no volume is being copied")
	return ""
}

func TestCopies_CutShortAreNeverTakenForVolumes(t *testing.T) {
	hostfs.Long(t)
	secondPool(t)
	p := keep(t, begin(t))
	class := p.Class("second", "csi.holdfast.dev", "pool", "second")
	p.Claim("large", "1Gi")
	p.sums["large"] = p.Run("fill-large", kube.Mount("large", "/data"), kube.Script(`head -c 600000000 /dev/urandom >/data/file; sync /data/file; sha256sum </data/file`))
	p.DeletePod("fill-large")
	p.Snapshot("large", "large")

	p.sub("the object is deleted", func(p *precious) {
		volume := p.copying(class, "forgotten")
		cluster.MustKubectl(p.t, "delete", "--wait=false", "volumes.holdfast.dev", volume)
		v := &v1beta1.Volume{}
		kube.AwaitOne(p.Space, p.Holdfast("volumes"), volume, "to be written again as half a copy, or by csi-provisioner, for which it is copied on", func(o *unstructured.Unstructured) (bool, error) {
			*v = v1beta1.Volume{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, v)
			return v.IsIncomplete() && v.Status.Phase == v1beta1.PhaseFailed || v.IsCopied() && v.IsComplete(), err
		})
		if v.IsIncomplete() {
			cluster.MustRunHoldfast(p.t, "volumes", "delete", volume, "--yes")
		}
		p.Ready("forgotten")
		if got := p.Exec("forgotten", "sh", "-ec", "sha256sum </data/file"); got != p.sums["large"] {
			p.t.Errorf("a pod sees %q, want %q", got, p.sums["large"])
		}
		p.DeletePod("forgotten")
		p.DeleteClaim("forgotten")
	})
	p.sub("etcd is put back", func(p *precious) {
		state := filepath.Join(p.t.TempDir(), "state")
		volume := p.copying(class, "whole")
		p.control("save-state", state)
		if v, err := objects.Volumes().Get(p.t.Context(), volume, metav1.GetOptions{}); err != nil || !v.IsBeingPopulated() {
			p.t.Fatalf("the copy ended while the state was saved: %v", err)
		}
		p.Ready("whole")
		const later = `head -c 3000000 /dev/urandom >/data/later; sync /data/later; cat /data/file /data/later | sha256sum`
		sum := p.Exec("whole", "sh", "-ec", later)
		p.control("restore-state", state)
		cluster.MustKubectl(p.t, "-n", kube.System, "rollout", "restart", "deployment", "holdfast-controller") // csi-provisioner has made the volume
		p.DeletePod("whole")                                                                                   // its kubelet ends it: by the API server it has no node yet
		p.Pod("whole", kube.Mount("whole", "/data"))
		p.Ready("whole")
		if got := p.Exec("whole", "sh", "-ec", "cat /data/file /data/later | sha256sum"); got != sum {
			p.t.Errorf("what a pod wrote after the copy is %q, was %q", got, sum)
		}
		p.DeletePod("whole")
		p.DeleteClaim("whole")
	})
}
