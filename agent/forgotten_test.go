package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// writtenAgain waits for another object of a volume that is ready.
func (r *rig) writtenAgain(before *v1beta1.Volume) *v1beta1.Volume {
	r.Helper()
	var now *v1beta1.Volume
	wait.Until(r, "another object of volume "+before.Name, func() bool {
		now = r.volume(before.Name)
		return now != nil && now.UID != before.UID && now.Status.Phase == v1beta1.PhaseReady
	})
	return now
}

func TestObject_DeletedWithoutARequestIsWrittenAgainAndItsDataStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a", func(v *v1beta1.Volume) {
			v.Spec.ClaimRef = v1beta1.ReferenceTo("shop/db")
			v.Spec.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "db", "csi.storage.k8s.io/pvc/namespace": "shop"}
			v.Spec.OnNodeLoss = v1beta1.DeleteOnNodeLoss
		})
		before := r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("kept"))
		r.drop("a")
		r.expectEvent(v1beta1.ReasonForgotten)
		now := r.writtenAgain(before)
		if got := r.host.Read("a", 4); string(got) != "kept" || r.host.count("delete a") > 0 {
			t.Errorf("the volume holds %q, and was deleted %d times", got, r.host.count("delete a"))
		}
		if now.Spec.ClaimRef.String() != "shop/db" || now.Spec.OnNodeLoss != v1beta1.DeleteOnNodeLoss || now.Spec.Deletion != nil {
			t.Errorf("it came back as %+v", now.Spec)
		}
	})
}

func TestObject_DeletedWithoutARequestIsCompleteOnTheDiskBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.refuse["complete a"] = fmt.Errorf("%w: the pool does not answer", backend.ErrUnavailable)
		r.begin()
		r.ask("a", func(v *v1beta1.Volume) {
			v.Spec.SourceRef, v.Spec.PopulatedBy = &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}, v1beta1.PopulatedByPod
		})
		wait.Until(r, "the volume", func() bool { return r.volume("a").Status.CreationTime != nil })
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1beta1.PopulatedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPopulated})
		})
		before := r.volume("a")
		r.drop("a")
		if v := r.phase("a", v1beta1.PhaseDeleting); v.UID != before.UID || v.Status.Error == nil {
			t.Errorf("it is %+v", v)
		}
		r.host.set(func() { clear(r.host.refuse) })
		if now := r.writtenAgain(before); now.IsIncomplete() || r.onDisk("a").Incomplete {
			t.Errorf("it came back as %+v", now.Status)
		}
	})
}

// As by a controller that has begun another copy after etcd was put back, which failed.
func TestObject_OfAFailedCopyIsDeletedWithoutTheContentThatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		for name, deletes := range map[string]bool{"whole": false, "half": true} {
			r.ask(name, func(v *v1beta1.Volume) {
				v.Spec.SourceRef, v.Spec.PopulatedBy = &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}, v1beta1.PopulatedByPod
			})
			wait.Until(r, "the volume", func() bool { return r.volume(name).Status.CreationTime != nil })
			if !deletes {
				r.writeStatus(name, func(s *v1beta1.VolumeStatus) { s.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete} })
				wait.Until(r, "it being complete on the disk", func() bool { return r.volume(name).HasContent() })
			}
			before := r.volume(name)
			r.writeStatus(name, func(s *v1beta1.VolumeStatus) { s.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyFailed} })
			r.remove(name)
			if deletes {
				r.gone(name)
			} else {
				r.writtenAgain(before)
			}
			if deleted := r.host.count("delete "+name) > 0; deleted != deletes {
				t.Errorf("%s: deleted from the disk: %v", name, deleted)
			}
		}
	})
}

func TestObject_DeletedWithoutARequestReportsHowToDeleteForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a", func(v *v1beta1.Volume) {
			v.Spec.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "db", "csi.storage.k8s.io/pvc/namespace": "shop"}
			v.Spec.ClaimRef = v1beta1.ReferenceTo("shop/db")
		})
		r.phase("a", v1beta1.PhaseReady)
		r.drop("a")
		events := 0
		for events < 2 { // on the object that goes, and on the one that follows
			if e := <-r.events.Events; strings.Contains(e, v1beta1.ReasonForgotten) {
				events++
				if !strings.Contains(e, "shop/db") || !strings.Contains(e, "holdfast volumes delete a") {
					t.Errorf("it says %q", e)
				}
			}
		}
	})
}

// reachableAPI is an API server without the policy on requests: any account may write one.
type reachableAPI struct{ policy.Verdict }

func (w *reachableAPI) Refusal() error { _, why := w.Now(); return why }

func TestObject_ARequestThatAnybodyCouldHaveWrittenIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, requests := newRig(t), &reachableAPI{}
		r.change = func(c *Config) { c.Requests = requests }
		r.begin()
		before := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		source := r.askSnapshot("s", "a", nil)
		wait.Until(r, "the snapshot", func() bool { s := r.snapshot("s"); return s != nil && s.Status.Phase == v1beta1.PhaseReady })

		requests.Set(fmt.Errorf("just begun: %w", policy.ErrNotYet))
		r.remove("a")
		wait.Until(r, "the reason on the volume, which waits", func() bool {
			v := r.volume("a")
			return v != nil && v.DeletionTimestamp != nil && v.Status.Error != nil && strings.Contains(v.Status.Error.Message, policy.ErrNotYet.Error())
		})
		requests.Set(errors.New("there is no policy"))
		r.writtenAgain(before)
		r.removeSnapshot("s")
		wait.Until(r, "another object of the snapshot", func() bool {
			s := r.snapshot("s")
			return s != nil && s.UID != source.UID && s.Status.Phase == v1beta1.PhaseReady
		})
		r.giveUp(discard(v1beta1.SourceVolume, "a", "of an object that was"))
		r.discarded()
		if n := r.host.count("delete a"); n > 0 {
			t.Fatalf("the volume was deleted %d times", n)
		}

		requests.Set(nil)
		r.removeSnapshot("s")
		wait.Until(r, "no snapshot", func() bool {
			_, err := r.host.GetSnapshot(t.Context(), "s")
			return errors.Is(err, backend.ErrNotFound)
		})
		r.remove("a")
		r.gone("a")
		if r.host.has("a") {
			t.Error("the volume was not deleted")
		}
	})
}

func TestObject_ARequestForAnotherObjectIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		before := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.request("a", "of a copy")
		r.drop("a")
		r.writtenAgain(before)
		if r.host.count("delete a") > 0 {
			t.Error("the volume was deleted")
		}
	})
}

func TestObject_ARequestWithoutADeletionDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		o := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.request("a", o.UID)
		r.withVolumes("z") // so the request was seen
		if !r.host.has("a") || r.volume("a") == nil {
			t.Error("it is gone")
		}
		r.drop("a")
		r.gone("a")
	})
}

func TestObject_ThatLosesItsFinalizerByHandIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		before := r.phase("a", v1beta1.PhaseReady)
		r.stop()
		r.drop("a")
		o := r.volume("a")
		o.Finalizers = nil
		check.Got(r.volumes.Update(t.Context(), o, metav1.UpdateOptions{}))(t)
		r.gone("a")
		r.begin()
		r.writtenAgain(before)
	})
}

func TestObject_OfAVolumeThatWasNeverCreatedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.refuse["create a"] = backend.ErrExhausted
		r.begin().ask("a")
		r.phase("a", v1beta1.PhaseFailed)
		r.drop("a")
		r.gone("a")
	})
}

func TestSnapshot_DeletedWithoutARequestIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		r.askSnapshot("s", "a", nil)
		members := r.askGroup("g", "a", "b")
		for _, name := range append(members, "s") {
			r.readySnapshot(name)
			before := r.snapshot(name)
			r.dropSnapshot(name)
			wait.Until(r, "another object of snapshot "+name, func() bool {
				now := r.snapshot(name)
				return now != nil && now.UID != before.UID && now.Status.Phase == v1beta1.PhaseReady
			})
			if _, err := r.host.GetSnapshot(t.Context(), backend.ID(name)); err != nil {
				t.Errorf("snapshot %s is not on the disk: %v", name, err)
			}
		}
		if _, err := r.host.GetGroup(t.Context(), "g"); err != nil {
			t.Errorf("the group: %v", err)
		}
	})
}

func TestSnapshot_AGroupGoesOnlyWhenTheDeletionOfAllMembersIsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		members := r.askGroup("g", "a", "b")
		for _, name := range members {
			r.readySnapshot(name)
		}
		r.removeSnapshot(members[0])
		before := r.snapshot(members[1])
		r.dropSnapshot(members[1])
		wait.Until(r, "another object of the member without a request to delete", func() bool {
			now := r.snapshot(members[1])
			return now != nil && now.UID != before.UID
		})
		if _, err := r.host.GetGroup(t.Context(), "g"); err != nil {
			t.Errorf("the group: %v", err)
		}
		r.removeSnapshot(members[1])
		for _, name := range members {
			wait.Until(r, "the end of "+name, func() bool { return r.snapshot(name) == nil })
		}
	})
}

// The record of a group is in one of the pools of its members.
func TestSnapshot_OfAGroupWhoseRecordIsOutOfReachIsNotDeletedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a", "b")
		members := r.askGroup("g", "a", "b")
		for _, name := range members {
			r.readySnapshot(name)
		}
		r.host.set(func() {
			r.host.refuse["look for group g"] = fmt.Errorf("%w: group g; pool slow is out of reach: %w", backend.ErrNotFound, backend.ErrUnavailable)
		})
		looks := r.host.count("look for group g")
		for _, name := range members {
			r.removeSnapshot(name)
		}
		wait.Until(r, "two more looks", func() bool { return r.host.count("look for group g") >= looks+2 })
		for _, name := range members {
			if r.snapshot(name) == nil {
				t.Errorf("%s is said to be deleted", name)
			}
		}
		r.host.set(func() { delete(r.host.refuse, "look for group g") })
		for _, name := range members {
			wait.Until(r, "the end of "+name, func() bool { return r.snapshot(name) == nil })
		}
		if _, err := r.host.Memory.GetGroup(t.Context(), "g"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("the group is still there: %v", err)
		}
	})
}
