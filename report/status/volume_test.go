package status

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestDescribe_FindsAVolumeByItselfAndByItsClaim(t *testing.T) {
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: v1beta1.VolumeSpec{Node: "n1", ClaimRef: &v1beta1.NamespacedReference{Namespace: "shop", Name: "orders"}}}
	v.Status.Access = &v1beta1.VolumeAccess{Image: "/srv/fast/volumes/pvc-1/image"}
	v.Status.Conditions = []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: "DeviceErrors", Message: "look for failing disks"}}
	snapshot := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "snapshot-1"}, Spec: v1beta1.SnapshotSpec{SourceRef: v1beta1.SourceReference{Name: "pvc-1"}}}
	warning := func(kind, namespace, name, message string) *core.Event {
		return &core.Event{InvolvedObject: core.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, Reason: "Because", Message: message}
	}
	f := &facts.Facts{Volumes: []*v1beta1.Volume{{ObjectMeta: metav1.ObjectMeta{Name: "pvc-2"}}, v}, Snapshots: []*v1beta1.Snapshot{snapshot}, Warnings: []*core.Event{
		warning("Volume", "", "pvc-1", "of the volume"), warning("PersistentVolumeClaim", "shop", "orders", "of the claim"), warning("Volume", "", "pvc-2", "of another"),
	}}
	pod := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: core.PodSpec{NodeName: "n1", Volumes: []core.Volume{{VolumeSource: core.VolumeSource{
		PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "orders"},
	}}}}, Status: core.PodStatus{Phase: core.PodRunning}}
	c := facts.Clients{Kubernetes: fake.NewSimpleClientset(pod)}
	for _, name := range []string{"pvc-1", "shop/orders"} {
		var out strings.Builder
		check.OK(t, Describe(t.Context(), &out, c, f, name))
		expects(t, out.String(),
			"shop/orders", "n1", "/srv/fast/volumes/pvc-1/image", "False, DeviceErrors: look for failing disks", "web, Running on n1", "snapshot-1", "of the volume", "of the claim",
		)
		if strings.Contains(out.String(), "of another") {
			t.Errorf("%s: it has the warning of another:\n%s", name, out.String())
		}
	}
	kept := v.DeepCopy()
	kept.Name = "pvc-0"
	f.Volumes = append(f.Volumes, kept)
	if err := Describe(t.Context(), &strings.Builder{}, c, f, "shop/orders"); err == nil || !strings.Contains(err.Error(), "such as pvc-1 or pvc-0") {
		t.Errorf("two volumes of one claim: %v", err)
	}
	if err := Describe(t.Context(), &strings.Builder{}, c, f, "shop/none"); err == nil || !strings.Contains(err.Error(), "shop/none") || !strings.Contains(err.Error(), "holdfast volumes list") {
		t.Errorf("an unknown one: %v", err)
	}
}
