package cluster_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestGiveUp_OfAVolumeThatHasChangedDiscardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Hosts(map[string]int64{"a": gib})
		if _, err := w.Backend.Create(t.Context(), inmemory.Spec("v", mib)); err != nil {
			t.Fatal(err)
		}
		before := w.Volume("v")
		if _, err := w.Volumes().Patch(t.Context(), "v", types.MergePatchType, []byte(`{"metadata":{"labels":{"in":"use"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Backend.GiveUpVolume(t.Context(), before, "its node is gone"); err != nil {
			t.Fatal(err)
		}
		n, err := w.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || len(n.Spec.Discard) > 0 {
			t.Errorf("to be discarded are %+v, %v", n.Spec.Discard, err)
		}
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || !hosts["a"].Has("v") {
			t.Errorf("the volume is %+v", v)
		}
	})
}
