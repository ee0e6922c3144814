package nfsserver

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// mounting is a pod with a volume that is no claim.
func mounting(source core.VolumeSource) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Spec: core.PodSpec{
		Containers: []core.Container{{Name: "c", Image: "holdfast.test/pause:1"}}, Volumes: []core.Volume{{Name: "all", VolumeSource: source}},
	}}
}

func TestPolicy_PodsMountNFSByThemselvesOnlyInNamespacesThatAreNamed(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	try := func(namespace string, source core.VolumeSource) error {
		_, err := r.theirs.CoreV1().Pods(namespace).Create(t.Context(), mounting(source), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	nfs := func(server, path string) core.VolumeSource {
		return core.VolumeSource{NFS: &core.NFSVolumeSource{Server: server, Path: path}}
	}
	thefts := map[string]core.VolumeSource{
		"by address": nfs(r.server("data").Status.Address(), "/pvc-1"), "by name": nfs("nfs-data."+r.namespace+".svc", "/pvc-1"), "all at once": nfs("10.0.0.1", "/"),
		"by another driver": {CSI: &core.CSIVolumeSource{Driver: "nfs.csi.k8s.io", VolumeAttributes: map[string]string{"server": "10.0.0.1", "share": "/"}}},
	}
	wait.Until(r, "the policy", func() bool { return realapi.RefusedBy(render.MountsPolicy, try("default", thefts["by address"])) })
	for what, source := range thefts {
		for _, namespace := range []string{"default", r.namespace} {
			if err := try(namespace, source); !realapi.RefusedBy(render.MountsPolicy, err) || !strings.Contains(err.Error(), "add "+namespace+" to spec.nfs.inlineVolumeNamespaces") {
				t.Errorf("%s, in %s: %v", what, namespace, err)
			}
		}
	}
	claim := core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "shop"}}
	for what, source := range map[string]core.VolumeSource{"a claim": claim, "nothing": {EmptyDir: &core.EmptyDirVolumeSource{}}} {
		if err := try("default", source); err != nil {
			t.Errorf("a pod with %s: %v", what, err)
		}
	}
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.InlineVolumeNamespaces = []string{"default"} })
	wait.Until(r, "the namespace being allowed", func() bool { return try("default", thefts["by name"]) == nil })
	if err := try("kube-public", thefts["by name"]); !realapi.RefusedBy(render.MountsPolicy, err) {
		t.Errorf("in a namespace that is not named, beside one that is: %v", err)
	}
	wait.Until(r, "the server saying so", func() bool {
		return meta.IsStatusConditionTrue(r.server("data").Status.Conditions, v1beta1.ProtectedCondition)
	})
}

func TestStatus_SaysWhichPoliciesAreMissing(t *testing.T) {
	r := working(nil)
	r.unlimited = []string{"ValidatingAdmissionPolicy holdfast-nfs-mounts"}
	c := meta.FindStatusCondition(r.status().Conditions, v1beta1.ProtectedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonMissing || !strings.Contains(c.Message, r.unlimited[0]) {
		t.Errorf("it says %+v", c)
	}
	r.unguarded = true
	if c := meta.FindStatusCondition(r.status().Conditions, v1beta1.ProtectedCondition); c.Reason != reasonNoPolicies {
		t.Errorf("without any, it says %+v", c)
	}
}
