package cluster_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestGiveUp_OfAVolumeThatHasChangedDiscardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Hosts(map[string]int64{"a": gib})
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		before := w.Volume("v")
		check.Got(w.Volumes().Patch(t.Context(), "v", types.MergePatchType, []byte(`{"metadata":{"labels":{"in":"use"}}}`), metav1.PatchOptions{}))(t)
		check.OK(t, w.Backend.GiveUpVolume(t.Context(), before, "its node is gone"))
		n, err := w.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || len(n.Spec.Discard) > 0 {
			t.Errorf("to be discarded are %+v, %v", n.Spec.Discard, err)
		}
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || !hosts["a"].Has("v") {
			t.Errorf("the volume is %+v", v)
		}
	})
}
