package cluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestGiveUp_OfAVolumeThatHasChangedDiscardsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Hosts(map[string]int64{"a": gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		before := w.Volume("v")
		check.Got(w.Volumes().Patch(w.Context(), "v", types.MergePatchType, []byte(`{"metadata":{"labels":{"in":"use"}}}`), metav1.PatchOptions{}))(w)
		check.OK(w, w.Backend.GiveUpVolume(w.Context(), before, "its node is gone"))
		n, err := w.Nodes().Get(w.Context(), "a", metav1.GetOptions{})
		if err != nil || len(n.Spec.Discard) > 0 {
			w.Errorf("to be discarded are %+v, %v", n.Spec.Discard, err)
		}
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || !hosts["a"].Has("v") {
			w.Errorf("the volume is %+v", v)
		}
	})
}
