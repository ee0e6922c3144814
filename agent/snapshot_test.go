package agent

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) withVolumes(names ...string) *rig {
	r.Helper()
	for _, name := range names {
		r.ask(name)
		r.phase(name, v1beta1.PhaseReady)
	}
	return r
}

func (r *rig) snapshotPhase(name string, phase v1beta1.Phase) *v1beta1.Snapshot {
	r.Helper()
	wait.Until(r, fmt.Sprintf("phase %s of snapshot %s", phase, name), func() bool { s := r.snapshot(name); return s != nil && s.Status.Phase == phase })
	return r.snapshot(name)
}

func TestSnapshot_IsTakenReportedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a")
		r.askSnapshot("s", "a", nil)
		s := r.snapshotPhase("s", v1beta1.PhaseReady)
		if s.Status.Size.Value() != 16*mib || s.Status.Pool != "memory" || s.Status.CreationTime == nil || s.Status.Columns.Size != "16Mi" || s.Status.ObservedGeneration != s.Generation {
			t.Errorf("reported %+v", s.Status)
		}
		expectCondition(t, s.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		if s.Status.Consistency != v1beta1.WrittenOut {
			t.Errorf("its consistency is %q", s.Status.Consistency)
		}
		r.removeSnapshot("s")
		wait.Until(r, "the end of it", func() bool { return r.snapshot("s") == nil })
		if _, err := r.host.GetSnapshot(t.Context(), "s"); err == nil {
			t.Error("it is still on the disk")
		}
	})
}

func TestSnapshot_OfAMissingVolumeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.askSnapshot("s", "absent", nil)
		if s := r.snapshotPhase("s", v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorNotFound {
			t.Errorf("recorded %+v", s.Status.Error)
		}
	})
}

func TestSnapshot_ThatVanishedIsLostAndNotTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a")
		r.askSnapshot("s", "a", nil)
		r.snapshotPhase("s", v1beta1.PhaseReady)
		check.OK(t, r.host.DeleteSnapshot(t.Context(), "s"))
		r.snapshotPhase("s", v1beta1.PhaseLost)
		r.restart()
		r.withVolumes("z")
		if s := r.snapshot("s"); s.Status.Phase != v1beta1.PhaseLost || r.host.count("snapshot s") != 1 {
			t.Errorf("it is %s, taken %d times", s.Status.Phase, r.host.count("snapshot s"))
		}
	})
}

func TestGroup_IsTakenOnceForAllItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		members := r.askGroup("g", "b", "a")
		for _, m := range members {
			if s := r.snapshotPhase(m, v1beta1.PhaseReady); s.Status.Group != "g" {
				t.Errorf("member %s is of group %q", m, s.Status.Group)
			}
		}
		g, err := r.host.GetGroup(t.Context(), "g")
		if err != nil || len(g.Snapshots) != 2 {
			t.Errorf("on the disk it is %+v, %v", g, err)
		}
	})
}

// TestGroup_FirstMemberCreatesTheWholeGroup is what is left when a controller dies after the first of its writes.
func TestGroup_FirstMemberCreatesTheWholeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		group := &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}}
		r.askSnapshot("g/a", "a", group)
		wait.Until(r, "the other member, adopted", func() bool {
			all, err := r.snapshots.List(t.Context(), metav1.ListOptions{})
			return err == nil && len(all.Items) == 2 && all.Items[0].Status.Phase == v1beta1.PhaseReady && all.Items[1].Status.Phase == v1beta1.PhaseReady
		})
	})
}

func TestGroup_DeletedMemberWaitsForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		members := r.askGroup("g", "a", "b")
		for _, m := range members {
			r.snapshotPhase(m, v1beta1.PhaseReady)
		}
		r.removeSnapshot(members[0])
		s := r.snapshotPhase(members[0], v1beta1.PhaseDeleting)
		if s.Status.Error != nil {
			t.Errorf("waiting is no error: %+v", s.Status.Error)
		}
		expectCondition(t, s.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonDeleting)
		if r.host.count("delete group g") > 0 {
			t.Error("the group was deleted with its first member")
		}
		r.removeSnapshot(members[1])
		for _, m := range members {
			wait.Until(r, "the end of "+m, func() bool { return r.snapshot(m) == nil })
		}
		if _, err := r.host.GetGroup(t.Context(), "g"); err == nil {
			t.Error("the group is still on the disk")
		}
	})
}

func TestGroup_IsNotDeletedWhileAMemberHasNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin().withVolumes("a", "b")
		first := r.askSnapshot("g/a", "a", &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}})
		r.snapshotPhase(first.Name, v1beta1.PhaseReady)
		r.removeSnapshot(first.Name)
		var second string
		wait.Until(r, "an object of the other member", func() bool {
			all, err := r.snapshots.List(t.Context(), metav1.ListOptions{})
			for _, s := range all.Items {
				if s.Name != first.Name && s.Status.Phase == v1beta1.PhaseReady {
					second = s.Name
				}
			}
			return err == nil && second != ""
		})
		if _, err := r.host.GetGroup(t.Context(), "g"); err != nil {
			t.Fatal("the group went with its first member")
		}
		r.removeSnapshot(second)
		wait.Until(r, "the end of both", func() bool { return r.snapshot(first.Name) == nil && r.snapshot(second) == nil })
	})
}

func TestGroup_ThatDiffersFromItsMemberIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		r.askSnapshot("wrong", "a", &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"a", "b"}})
		if s := r.snapshotPhase("wrong", v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorInvalid {
			t.Errorf("recorded %+v", s.Status.Error)
		}
		check.Got(r.host.Memory.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "other", Sources: []backend.ID{"b"}}))(t)
		members := r.askGroup("other", "a", "b")
		if s := r.snapshotPhase(members[0], v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorExists {
			t.Errorf("recorded %+v", s.Status.Error)
		}
		r.removeSnapshot(members[0])
		wait.Until(r, "the end of it", func() bool { s := r.snapshot(members[0]); return s == nil })
		if _, err := r.host.GetGroup(t.Context(), "other"); err != nil {
			t.Errorf("the other group went with the object that failed for its name: %v", err)
		}
	})
}

// plain is storage that can only make volumes.
type plain struct{ backend.Backend }

func TestSnapshot_UnsupportedByTheHostIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.Backend = plain{r.host} }
		r.begin().withVolumes("a")
		r.askSnapshot("s", "a", nil)
		if s := r.snapshotPhase("s", v1beta1.PhaseFailed); s.Status.Error.Code != v1beta1.ErrorInvalid {
			t.Errorf("recorded %+v", s.Status.Error)
		}
		r.removeSnapshot("s")
		wait.Until(r, "the end of it", func() bool { return r.snapshot("s") == nil })
		r.ask("c", func(v *v1beta1.Volume) {
			v.Spec.SourceRef = &v1beta1.SourceReference{Kind: v1beta1.SourceVolume, Name: "a"}
		})
		if v := r.phase("c", v1beta1.PhaseFailed); v.Status.Error.Code != v1beta1.ErrorInvalid {
			t.Errorf("recorded %+v", v.Status.Error)
		}
		r.grow("a", 32*mib)
		wait.Until(r, "the refusal", func() bool { e := r.volume("a").Status.Error; return e != nil && e.Code == v1beta1.ErrorInvalid })
	})
}
