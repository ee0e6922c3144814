package cluster

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// What a release took that did not look at a field. The server that knows it again takes the status, since the rest is as
// it was.
func TestUnreadable_StorageClusterKeepsItsObjects(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	realapi.ChangePast(t, r.config, "storageclusters", "holdfast", `{"spec":{"resources":{"limits":{"cpu":"1e1.5"}},"csi":{"enabled":false}}}`, "spec.resources.limits")
	message := r.condition("holdfast", v1beta1.DegradedCondition, v1beta1.ReasonUnreadable, `spec.resources.limits: {"cpu":"1e1.5"}`)
	if ready := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ReadyCondition); ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonUnreadable || ready.Message != message {
		t.Errorf("Ready is %+v", ready)
	}
	set := r.theirs.AppsV1().DaemonSets(namespace)
	before, err := set.Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("what runs was removed: %v", err)
	}
	check.OK(t, set.Delete(t.Context(), v1beta1.NodeName, metav1.DeleteOptions{}))
	wait.Until(r, "the DaemonSet again", func() bool {
		now, err := set.Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{})
		return err == nil && now.UID != before.UID
	})
	if c := r.cluster("holdfast"); c.Unreadable() == nil || c.Status.Phase != v1beta1.ClusterDegraded || c.Spec.CSI.Enabled == nil {
		text, _ := json.Marshal(c)
		t.Errorf("it became %s", text)
	}
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.MergePatchType, []byte(`{"spec":{"resources":null,"csi":null}}`), metav1.PatchOptions{}))(t)
	r.reconciled("holdfast")
	conditions := r.cluster("holdfast").Status.Conditions
	if ready := meta.FindStatusCondition(conditions, v1beta1.ReadyCondition); ready.Reason == v1beta1.ReasonUnreadable || !meta.IsStatusConditionFalse(conditions, v1beta1.DegradedCondition) {
		t.Errorf("when it can be read again, its conditions are %+v", conditions)
	}
}
