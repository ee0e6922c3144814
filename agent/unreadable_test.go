package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

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
func (r *rig) awaitUnreadable(name, field string) {
	r.Helper()
	wait.Until(r, "the word that volume "+name+" cannot be read", func() bool {
		v := r.volume(name)
		if v == nil {
			r.Fatalf("volume %s is gone", name)
		}
		c := meta.FindStatusCondition(v.Status.Conditions, v1beta1.ReadyCondition)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonUnreadable && strings.Contains(c.Message, field)
	})
}

func TestUnreadable_VolumeIsLeftAloneAndTheOthersAreReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.patched("a", `{"spec":{"inodes":"many"}}`)
		r.awaitUnreadable("a", `spec.inodes: "many"`)
		r.expectEvent(v1beta1.ReasonUnreadable)
		r.ask("b")
		r.phase("b", v1beta1.PhaseReady)
		r.restart()
		r.ask("c")
		r.phase("c", v1beta1.PhaseReady)
		a := r.volume("a")
		if a.Unreadable() == nil || a.Spec.Node != node || a.Status.Phase != v1beta1.PhaseReady || adopted(a) || !r.host.has("a") {
			t.Errorf("it became %+v, on disk: %t", a, r.host.has("a"))
		}
	})
}

func TestUnreadable_VolumeIsNotRemovedUntilItIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		a := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.stop()
		r.patched("a", fmt.Sprintf(`{"spec":{"inodes":"many","deletion":{"uid":%q,"requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"}}}`, a.UID))
		r.remove("a")
		r.begin()
		r.awaitUnreadable("a", "spec.inodes")
		r.withVolumes("b")
		if v := r.volume("a"); v == nil || v.DeletionTimestamp == nil || !owned(v) || !r.host.has("a") || r.host.count("delete a") > 0 {
			t.Errorf("it is %+v, on disk: %t", v, r.host.has("a"))
		}
		r.patched("a", `{"spec":{"inodes":null}}`)
		r.gone("a")
		if r.host.has("a") {
			t.Error("it is on the disk still")
		}
	})
}

func TestUnreadable_VolumeWithAnUnreadableNodeIsNotAdoptedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.stop()
		r.patched("a", `{"spec":{"node":["node-a"]}}`) // which no selector finds
		r.begin()
		r.withVolumes("b")
		if v := r.volume("a"); v.Unreadable() == nil || adopted(v) || !r.host.has("a") {
			t.Errorf("it is %+v, on disk: %t", v, r.host.has("a"))
		}
	})
}

func TestUnreadable_GroupIsNotDeletedWhileAMemberIsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.withVolumes("a", "b")
		group := &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}}
		first, second := backend.GroupSpec{Name: "g"}.Member("a"), backend.GroupSpec{Name: "g"}.Member("b")
		kept := r.askSnapshot(second.Name, "b", group).Name
		gone := r.askSnapshot(first.Name, "a", group).Name
		r.readySnapshot(kept)
		r.readySnapshot(gone)
		r.stop()
		check.Got(r.snapshots.Patch(t.Context(), kept, types.MergePatchType, []byte(`{"spec":{"group":"g"}}`), metav1.PatchOptions{}))(t)
		request := fmt.Sprintf(`{"spec":{"deletion":{"uid":%q,"requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"}}}`, r.snapshot(gone).UID)
		check.Got(r.snapshots.Patch(t.Context(), gone, types.MergePatchType, []byte(request), metav1.PatchOptions{}))(t)
		check.OK(t, r.snapshots.Delete(t.Context(), gone, metav1.DeleteOptions{}))
		r.begin()
		wait.Until(r, "a word on what the deletion waits for", func() bool {
			s := r.snapshot(gone)
			if s == nil {
				t.Fatal("a member went alone")
			}
			c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ReadyCondition)
			return c != nil && c.Reason == v1beta1.ReasonDeleting && strings.Contains(c.Message, kept)
		})
		if _, err := r.host.GetSnapshot(t.Context(), backend.ID(kept)); err != nil || r.host.count("delete group g") > 0 {
			t.Errorf("the group was deleted: %v", err)
		}
	})
}

func TestUnreadable_DiscardWaitsForTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop()
		r.stored(backend.VolumeSpec{Name: "old"})
		patch := `{"spec":{"discard":[{"kind":"Volume","name":"old","uid":"u1","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"},
		{"kind":"Volume","name":"x","uid":"u2","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00Z"}]}}`
		check.Got(r.nodes.Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
		r.begin()
		wait.Until(r, "the word that the node cannot be read", func() bool {
			c := meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.ReadyCondition)
			return c != nil && c.Reason == v1beta1.ReasonUnreadable && strings.Contains(c.Message, "spec.discard[1].requestedAt")
		})
		r.withVolumes("b")
		if n := r.node(); len(n.Spec.Discard) != 2 || !r.host.has("old") || r.volume("old") != nil {
			t.Errorf("of the list %d are left, on disk: %t", len(n.Spec.Discard), r.host.has("old"))
		}
	})
}

func TestUnreadable_NodeWithoutPoolsThatUsesThoseOfCephIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) {
			c.Pools, c.CephVolumes = nil, map[string]func() (string, error){v1beta1.RBDVolumesCondition: func() (string, error) { return "", nil }}
		}
		r.begin()
		spoil := func(discard string) {
			check.Got(r.nodes.Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"discard":`+discard+`}}`), metav1.PatchOptions{}))(t)
		}
		is := func(status metav1.ConditionStatus, reason string) func() bool {
			return func() bool {
				c := meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.ReadyCondition)
				return c != nil && c.Status == status && c.Reason == reason
			}
		}
		wait.Until(r, "a node that is ready", is(metav1.ConditionTrue, v1beta1.ReasonReady))
		spoil(`"all"`)
		wait.Until(r, "the word that it cannot be read", is(metav1.ConditionFalse, v1beta1.ReasonUnreadable))
		spoil("null")
		wait.Until(r, "a node that is ready again", is(metav1.ConditionTrue, v1beta1.ReasonReady))
	})
}
