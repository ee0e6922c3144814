package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// spoil gives a volume a field past the schema that cannot be decoded.
func (w *world) spoil(name string) {
	w.Helper()
	patch := []byte(`{"spec":{"inodes":"many"}}`)
	if _, err := w.volumes().Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until("the word that it cannot be read", func() bool {
		_, err := w.backend.Get(w.Context(), backend.ID(name))
		return errors.Is(err, backend.ErrUnavailable)
	})
}

func TestAVolumeThatCannotBeReadIsRefusedByNameAndTheOthersGoOn(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": gib})["a"]
	for _, name := range []string{"v", "other"} {
		if _, err := w.backend.Create(t.Context(), spec(name, mib)); err != nil {
			t.Fatal(err)
		}
	}
	w.spoil("v")
	_, got := w.backend.Get(t.Context(), "v")
	_, made := w.backend.Create(t.Context(), spec("v", mib))
	_, grown := w.backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib})
	_, cloned := w.backend.Clone(t.Context(), "v", spec("copy", mib))
	_, taken := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
	for what, err := range map[string]error{
		"get": got, "create": made, "expand": grown, "clone": cloned, "snapshot": taken, "delete": w.backend.Delete(t.Context(), "v"),
	} {
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), `spec.inodes: "many" cannot be read`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	all, err := w.backend.List(t.Context())
	if err != nil || len(all) != 2 || !all[1].Condition.Abnormal || !strings.Contains(all[1].Condition.Message, "spec.inodes") {
		t.Errorf("the list is %+v, %v", all, err)
	}
	if _, err := w.backend.Create(t.Context(), spec("third", mib)); err != nil {
		t.Error(err)
	}
	if err := w.backend.Delete(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	if v := w.volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || v.Unreadable() == nil || !host.has("v") {
		t.Errorf("it became %+v", v)
	}
}

func TestAVolumeThatCannotBeReadIsNeverGarbage(t *testing.T) {
	w, host := littered(t, time.Nanosecond)
	w.claimed("kept", "gone")
	w.spoil("kept")
	w.claimed("garbage", "gone")
	w.leads()
	w.gone("garbage")
	if v := w.volume("kept"); v == nil || v.DeletionTimestamp != nil || v.Unreadable() == nil || !host.has("kept") {
		t.Errorf("it became %+v", v)
	}
}

func TestAVolumeThatCannotBeReadIsNotGivenUpWithItsNode(t *testing.T) {
	w := newWorld(t).controller()
	w.puppet("a", gib)
	w.kubernetesNode("a")
	w.leads()
	for _, name := range []string{"v", "other"} {
		o := &v1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1.AgentFinalizer}}, Spec: v1.VolumeSpec{Name: name, Node: "a", OnNodeLoss: v1.DeleteOnNodeLoss}}
		if _, err := w.volumes().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.answer(name, isMade)
	}
	w.spoil("v")
	w.beat("a", 1)
	if err := w.theirs.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("other")
	w.until("the word that it cannot be read", func() bool {
		status, reason := w.readiness(w.volume("v").Status.Conditions)
		return status == metav1.ConditionFalse && reason == v1.ReasonUnreadable
	})
	if v := w.volume("v"); v.DeletionTimestamp != nil || v.Status.Phase == v1.PhaseLost || v.Unreadable() == nil {
		t.Errorf("it became %+v", v)
	}
}
