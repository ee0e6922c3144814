package agent

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// patched changes a volume past any schema.
func (r *rig) patched(name, patch string) {
	r.Helper()
	check.Got(r.volumes.Patch(r.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(r)
}

// awaitUnreadable waits for the condition that says that an object cannot be decoded.
func (r *rig) awaitUnreadable(of func() []metav1.Condition, field string) {
	r.Helper()
	c := r.condition(of, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonUnreadable)
	if !strings.Contains(c.Message, field) {
		r.Errorf("it says %q, not %s", c.Message, field)
	}
}

func TestUnreadable_VolumeIsLeftAloneAndTheOthersAreReconciled(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.patched("a", `{"spec":{"inodes":"many"}}`)
		r.awaitUnreadable(r.ofVolume("a"), `spec.inodes: "many"`)
		r.expectEvent(v1beta1.ReasonUnreadable)
		r.withVolumes("b")
		r.restart()
		r.withVolumes("c")
		a := r.volume("a")
		if a.Unreadable() == nil || a.Spec.Node != node || a.Status.Phase != v1beta1.PhaseReady || adopted(a) || !r.host.has("a") {
			r.Errorf("it became %+v, on disk: %t", a, r.host.has("a"))
		}
		r.stop()
		r.patched("a", `{"spec":{"inodes":null,"node":["node-a"]}}`) // which no selector finds
		r.begin().withVolumes("d")
		if v := r.volume("a"); v.Unreadable() == nil || adopted(v) || !r.host.has("a") {
			r.Errorf("with an unreadable node it is %+v, on disk: %t", v, r.host.has("a"))
		}
	})
}

func TestUnreadable_VolumeIsNotRemovedUntilItIsCorrected(t *testing.T) {
	withAgent(t, func(r *rig) {
		a := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.stop()
		r.patched("a", fmt.Sprintf(`{"spec":{"inodes":"many","deletion":{"uid":%q,"requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"}}}`, a.UID))
		r.remove("a")
		r.begin()
		r.awaitUnreadable(r.ofVolume("a"), "spec.inodes")
		r.withVolumes("b")
		if v := r.volume("a"); v == nil || v.DeletionTimestamp == nil || !owned(v) || !r.host.has("a") || r.host.count("delete a") > 0 {
			r.Errorf("it is %+v, on disk: %t", v, r.host.has("a"))
		}
		r.patched("a", `{"spec":{"inodes":null}}`)
		r.gone("a")
		if r.host.has("a") {
			r.Error("it is on the disk still")
		}
	})
}

func TestUnreadable_GroupIsNotDeletedWhileAMemberIsUnreadable(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a", "b")
		members := r.withGroup("g", "a", "b")
		gone, kept := members[0], members[1]
		r.stop()
		check.Got(r.snapshots.Patch(r.Context(), kept, types.MergePatchType, []byte(`{"spec":{"group":"g"}}`), metav1.PatchOptions{}))(r)
		r.removeSnapshot(gone)
		r.begin()
		wait.Until(r, "a word on what the deletion waits for", func() bool {
			s := r.snapshot(gone)
			if s == nil {
				r.Fatal("a member went alone")
			}
			c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ReadyCondition)
			return c != nil && c.Reason == v1beta1.ReasonDeleting && strings.Contains(c.Message, kept)
		})
		if _, err := r.host.GetSnapshot(r.Context(), backend.ID(kept)); err != nil || r.host.count("delete group g") > 0 {
			r.Errorf("the group was deleted: %v", err)
		}
	})
}

func TestUnreadable_DiscardWaitsForTheList(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.stop()
		r.stored(backend.VolumeSpec{Name: "old"})
		patch := `{"spec":{"discard":[{"kind":"Volume","name":"old","uid":"u1","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"},
		{"kind":"Volume","name":"x","uid":"u2","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00Z"}]}}`
		r.patchNode(patch)
		r.begin()
		r.awaitUnreadable(r.ofNode, "spec.discard[1].requestedAt")
		r.withVolumes("b")
		if n := r.node(); len(n.Spec.Discard) != 2 || !r.host.has("old") || r.volume("old") != nil {
			r.Errorf("of the list %d are left, on disk: %t", len(n.Spec.Discard), r.host.has("old"))
		}
	})
}

func TestUnreadable_NodeWithoutPoolsThatUsesThoseOfCephIsNotReady(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) {
			c.Pools, c.CephVolumes = nil, map[string]func() (string, error){v1beta1.RBDVolumesCondition: func() (string, error) { return "", nil }}
		}
		r.begin()
		spoil := func(discard string) { r.patchNode(`{"spec":{"discard":` + discard + `}}`) }
		r.condition(r.ofNode, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		spoil(`"all"`)
		r.awaitUnreadable(r.ofNode, "spec.discard")
		spoil("null")
		r.condition(r.ofNode, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}
