package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestSnapshot_IsTakenReportedAndDeleted(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.askSnapshot("s", "a", nil)
		s := r.snapshotPhase("s", v1beta1.PhaseReady)
		if s.Status.Size.Value() != 16*mib || s.Status.Pool != "memory" || s.Status.CreationTime == nil || s.Status.Columns.Size != "16Mi" || s.Status.ObservedGeneration != s.Generation {
			r.Errorf("reported %+v", s.Status)
		}
		expectCondition(r, s.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		if s.Status.Consistency != v1beta1.WrittenOut {
			r.Errorf("its consistency is %q", s.Status.Consistency)
		}
		r.askSnapshot("of-none", "absent", nil)
		if none := r.snapshotPhase("of-none", v1beta1.PhaseFailed); none.Status.Error.Code != v1beta1.ErrorNotFound {
			r.Errorf("of a missing volume it recorded %+v", none.Status.Error)
		}
		r.removeSnapshot("s")
		r.goneSnapshots("s")
		if _, err := r.host.GetSnapshot(r.Context(), "s"); err == nil {
			r.Error("it is still on the disk")
		}
	})
}

func TestSnapshot_ThatVanishedIsLostAndNotTakenAgain(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.withSnapshot("s", "a")
		check.OK(r, r.host.DeleteSnapshot(r.Context(), "s"))
		r.snapshotPhase("s", v1beta1.PhaseLost)
		r.restart()
		r.withVolumes("z")
		if s := r.snapshot("s"); s.Status.Phase != v1beta1.PhaseLost || r.host.count("snapshot s") != 1 {
			r.Errorf("it is %s, taken %d times", s.Status.Phase, r.host.count("snapshot s"))
		}
	})
}

// TestGroup_FirstMemberCreatesTheWholeGroup is what is left when a controller dies after the first of its writes.
func TestGroup_FirstMemberCreatesTheWholeGroup(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a", "b")
		group := &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}}
		r.askSnapshot("g/a", "a", group)
		wait.Until(r, "the other member, adopted", func() bool {
			all, err := r.snapshots.List(r.Context(), metav1.ListOptions{})
			return err == nil && len(all.Items) == 2 && all.Items[0].Status.Phase == v1beta1.PhaseReady && all.Items[1].Status.Phase == v1beta1.PhaseReady
		})
	})
}

func TestGroup_IsTakenWholeAndDeletedWithItsLastMember(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a", "b")
		members := r.withGroup("g", "b", "a")
		for _, m := range members {
			if s := r.snapshot(m); s.Status.Group != "g" {
				r.Errorf("member %s is of group %q", m, s.Status.Group)
			}
		}
		if g := check.Got(r.host.GetGroup(r.Context(), "g"))(r); len(g.Snapshots) != 2 {
			r.Errorf("on the disk it is %+v", g)
		}
		r.removeSnapshot(members[0])
		s := r.snapshotPhase(members[0], v1beta1.PhaseDeleting)
		if s.Status.Error != nil {
			r.Errorf("waiting is no error: %+v", s.Status.Error)
		}
		expectCondition(r, s.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonDeleting)
		r.snapshotAgain(members[1]) // whose deletion is not requested
		r.called("delete group g", 0)
		r.host.set(func() { // the record of a group is in one of the pools of its members
			r.host.refuse["look for group g"] = fmt.Errorf("%w: group g; pool slow is out of reach: %w", backend.ErrNotFound, backend.ErrUnavailable)
		})
		r.removeSnapshot(members[1])
		looks := r.host.count("look for group g")
		wait.Until(r, "more looks", func() bool { return r.host.count("look for group g") >= looks+3 })
		for _, m := range members {
			if r.snapshot(m) == nil {
				r.Errorf("%s is said to be deleted", m)
			}
		}
		r.host.set(func() { clear(r.host.refuse) })
		r.goneSnapshots(members...)
		if _, err := r.host.Memory.GetGroup(r.Context(), "g"); !errors.Is(err, backend.ErrNotFound) {
			r.Errorf("the group is still there: %v", err)
		}
	})
}

func TestGroup_IsNotDeletedWhileAMemberHasNoObject(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin().withVolumes("a", "b")
		first := r.askSnapshot("g/a", "a", &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}})
		r.snapshotPhase(first.Name, v1beta1.PhaseReady)
		r.removeSnapshot(first.Name)
		var second string
		wait.Until(r, "an object of the other member", func() bool {
			all, err := r.snapshots.List(r.Context(), metav1.ListOptions{})
			for _, s := range all.Items {
				if s.Name != first.Name && s.Status.Phase == v1beta1.PhaseReady {
					second = s.Name
				}
			}
			return err == nil && second != ""
		})
		if _, err := r.host.GetGroup(r.Context(), "g"); err != nil {
			r.Fatal("the group went with its first member")
		}
		r.removeSnapshot(second)
		r.goneSnapshots(first.Name, second)
	})
}

func TestGroup_ThatDiffersFromItsMemberIsRefused(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a", "b")
		r.askSnapshot("wrong", "a", &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}})
		if s := r.snapshotPhase("wrong", v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorInvalid {
			r.Errorf("recorded %+v", s.Status.Error)
		}
		check.Got(r.host.Memory.SnapshotGroup(r.Context(), backend.GroupSpec{Name: "other", Sources: []backend.ID{"b"}}))(r)
		members := r.askGroup("other", "a", "b")
		if s := r.snapshotPhase(members[0], v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorExists {
			r.Errorf("recorded %+v", s.Status.Error)
		}
		r.removeSnapshot(members[0])
		r.goneSnapshots(members[0])
		check.Got(r.host.GetGroup(r.Context(), "other"))(r) // the other group stays
	})
}
