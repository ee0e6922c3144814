package upgrade

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) said(name string) string {
	c := meta.FindStatusCondition(r.get(name).Status.Conditions, v1beta1.CompleteCondition)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func TestUnreadable_UpgradeIsNamedAndTheNextOneRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.upgrade("bad", v1beta1.StorageUpgradeSpec{Image: newImage})
		spoil := func(rollback string) {
			check.Got(r.client.HoldfastV1beta1().StorageUpgrades().Patch(t.Context(), "bad", types.MergePatchType, []byte(`{"spec":{"rollback":`+rollback+`}}`), metav1.PatchOptions{}))(t)
		}
		spoil(`"no"`)
		r.ended("good", v1beta1.StorageUpgradeSpec{Image: newImage, NodeTimeout: new(v1beta1.Duration("1d"))}, v1beta1.UpgradeCompleted)
		wait.Until(r, "the word that it cannot be read", func() bool { return strings.HasPrefix(r.said("bad"), v1beta1.ReasonUnreadable+`: spec.rollback: "no"`) })
		u := r.get("bad")
		if u.Status.Phase != "" || u.Status.ObservedGeneration != u.Generation || len(u.Finalizers) > 0 || u.Unreadable() == nil {
			t.Errorf("it became %+v", u)
		}
		ready, complete := meta.FindStatusCondition(u.Status.Conditions, v1beta1.ReadyCondition), meta.FindStatusCondition(u.Status.Conditions, v1beta1.CompleteCondition)
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != complete.Reason || ready.Message != complete.Message {
			t.Errorf("Ready is %+v", ready)
		}
		if !meta.IsStatusConditionTrue(u.Status.Conditions, v1beta1.StalledCondition) {
			t.Error("it is not Stalled")
		}
		spoil("null")
		wait.Until(r, "the end of the one that can be read again", func() bool { return r.over("bad") })
		if u := r.get("bad"); u.Status.Phase != v1beta1.UpgradeCompleted || meta.IsStatusConditionTrue(u.Status.Conditions, v1beta1.StalledCondition) || !meta.IsStatusConditionTrue(u.Status.Conditions, v1beta1.ReadyCondition) {
			t.Errorf("once it could be read, it ended as %+v", u.Status)
		}
	})
}
