package volume_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestUnreadable_VolumeIsNotGivenUpWithItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t).started()
		w.Puppet("a", gib)
		w.KubernetesNode("a")
		w.leads()
		for _, name := range []string{"v", "other"} {
			o := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{Name: name, Node: "a", OnNodeLoss: v1beta1.DeleteOnNodeLoss}}
			check.Got(w.Volumes().Create(t.Context(), o, metav1.CreateOptions{}))(t)
			w.Answer(name, inmemory.Made)
		}
		w.Spoil("v")
		w.Beat("a", 1)
		check.OK(t, w.Theirs.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.Gone("other")
		w.Until("the word that it cannot be read", func() bool {
			status, reason := w.Readiness(w.Volume("v").Status.Conditions)
			return status == metav1.ConditionFalse && reason == v1beta1.ReasonUnreadable
		})
		if v := w.Volume("v"); v.DeletionTimestamp != nil || v.Status.Phase == v1beta1.PhaseLost || v.Unreadable() == nil {
			t.Errorf("it became %+v", v)
		}
	})
}
