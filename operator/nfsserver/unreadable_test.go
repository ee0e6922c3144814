package nfsserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestUnreadable_ServerIsNamedAndTheOthersServe(t *testing.T) {
	r := newRig(t)
	bad := &unstructured.Unstructured{Object: map[string]any{"kind": "NFSServer", "spec": map[string]any{
		"storage": map[string]any{"size": "1Gi"}, "resources": map[string]any{"limits": map[string]any{"memory": "1e1.5"}},
	}}}
	bad.SetNamespace(r.namespace)
	bad.SetName("bad")
	realapi.PutPast(t, r.config, "nfsservers", bad, "spec.resources.limits")
	message := r.condition("bad", v1beta1.DegradedCondition, v1beta1.ReasonUnreadable, `spec.resources.limits: {"memory":"1e1.5"}`)
	if ready := meta.FindStatusCondition(r.server("bad").Status.Conditions, v1beta1.ReadyCondition); ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonUnreadable || ready.Message != message {
		t.Errorf("Ready is %+v", ready)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning Unreadable")) == 1 })
	r.create("data", nil)
	r.serve("data")
	if s := r.server("bad"); len(s.Finalizers) > 0 || s.Unreadable() == nil {
		t.Errorf("it became %+v", s)
	}
	if _, err := r.theirs.CoreV1().Services(r.namespace).Get(t.Context(), "nfs-bad", metav1.GetOptions{}); err == nil {
		t.Error("something was made for it")
	}
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "bad", types.MergePatchType, []byte(`{"spec":{"resources":null}}`), metav1.PatchOptions{}))(t)
	r.serve("bad")
	r.condition("bad", v1beta1.ReadyCondition, v1beta1.ReasonReady)
}
