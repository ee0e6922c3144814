package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
	withAgent(t, func(r *rig) {
		r.ask("a", func(v *v1beta1.Volume) {
			v.Spec.ClaimRef = v1beta1.ReferenceTo("shop/db")
			v.Spec.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "db", "csi.storage.k8s.io/pvc/namespace": "shop"}
			v.Spec.OnNodeLoss = v1beta1.DeleteOnNodeLoss
		})
		before := r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("kept"))
		r.drop("a")
		for events := 0; events < 2; { // on the object that goes, and on the one that follows
			if e := <-r.events.Events; strings.Contains(e, v1beta1.ReasonForgotten) {
				events++
				if !strings.Contains(e, "shop/db") || !strings.Contains(e, "holdfast volumes delete a") {
					r.Errorf("it says %q", e)
				}
			}
		}
		now := r.writtenAgain(before)
		if got := r.host.Read("a", 4); string(got) != "kept" || r.host.count("delete a") > 0 {
			r.Errorf("the volume holds %q, and was deleted %d times", got, r.host.count("delete a"))
		}
		if now.Spec.ClaimRef.String() != "shop/db" || now.Spec.OnNodeLoss != v1beta1.DeleteOnNodeLoss || now.Spec.Deletion != nil {
			r.Errorf("it came back as %+v", now.Spec)
		}
	})
}

func TestObject_DeletedWithoutARequestIsCompleteOnTheDiskBefore(t *testing.T) {
	inBubble(t, func(r *rig) {
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
			r.Errorf("it is %+v", v)
		}
		r.host.set(func() { clear(r.host.refuse) })
		if now := r.writtenAgain(before); now.IsIncomplete() || r.onDisk("a").Incomplete {
			r.Errorf("it came back as %+v", now.Status)
		}
	})
}

// As by a controller that has begun another copy after etcd was put back, which failed.
func TestObject_OfAFailedCopyIsDeletedWithoutTheContentThatItDoesNotKnow(t *testing.T) {
	withAgent(t, func(r *rig) {
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
				r.Errorf("%s: deleted from the disk: %v", name, deleted)
			}
		}
	})
}

// reachableAPI is an API server without the policy on requests: any account may write one.
type reachableAPI struct{ policy.Verdict }

func (w *reachableAPI) Refusal() error { _, why := w.Now(); return why }

func TestObject_ARequestThatAnybodyCouldHaveWrittenIsNone(t *testing.T) {
	inBubble(t, func(r *rig) {
		requests := &reachableAPI{}
		r.change = func(c *Config) { c.Requests = requests }
		r.begin()
		before := r.withVolumes("a").volume("a")
		r.withSnapshot("s", "a")
		source := r.snapshot("s")

		requests.Set(fmt.Errorf("just begun: %w", policy.ErrNotYet))
		r.remove("a")
		wait.Until(r, "the reason on the volume, which waits", func() bool {
			v := r.volume("a")
			return v != nil && v.DeletionTimestamp != nil && v.Status.Error != nil && strings.Contains(v.Status.Error.Message, policy.ErrNotYet.Error())
		})
		requests.Set(errors.New("there is no policy"))
		r.writtenAgain(before)
		r.removeSnapshot("s")
		r.anotherSnapshot(source)
		r.giveUp(discard(v1beta1.SourceVolume, "a", "of an object that was"))
		r.answered()
		if n := r.host.count("delete a"); n > 0 {
			r.Fatalf("the volume was deleted %d times", n)
		}

		requests.Set(nil)
		r.removeSnapshot("s")
		wait.Until(r, "no snapshot", func() bool {
			_, err := r.host.GetSnapshot(r.Context(), "s")
			return errors.Is(err, backend.ErrNotFound)
		})
		r.remove("a")
		r.gone("a")
		if r.host.has("a") {
			r.Error("the volume was not deleted")
		}
	})
}

func TestObject_IsWrittenAgainWithoutARequestOfItsOwnAndADeletion(t *testing.T) {
	withAgent(t, func(r *rig) {
		before := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.request("a", "of a copy")
		r.drop("a")
		before = r.writtenAgain(before)
		r.stop()
		r.drop("a")
		r.patched("a", `{"metadata":{"finalizers":null}}`) // by hand
		r.gone("a")
		r.begin()
		r.request("a", r.writtenAgain(before).UID)
		r.withVolumes("z") // so the request was seen
		if !r.host.has("a") || r.volume("a") == nil || r.host.count("delete a") > 0 {
			r.Error("it was deleted")
		}
		r.drop("a")
		r.gone("a")
	})
}

func TestObject_OfAVolumeThatWasNeverCreatedIsReleased(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.host.refuse["create a"] = backend.ErrExhausted
		r.begin().ask("a")
		r.phase("a", v1beta1.PhaseFailed)
		r.drop("a")
		r.gone("a")
	})
}

// snapshotAgain deletes the object of a snapshot without a request, and waits for another one.
func (r *rig) snapshotAgain(name string) {
	r.Helper()
	before := r.snapshot(name)
	r.dropSnapshot(name)
	r.anotherSnapshot(before)
}

func (r *rig) anotherSnapshot(before *v1beta1.Snapshot) {
	r.Helper()
	wait.Until(r, "another object of snapshot "+before.Name, func() bool {
		now := r.snapshot(before.Name)
		return now != nil && now.UID != before.UID && now.Status.Phase == v1beta1.PhaseReady
	})
}

func TestSnapshot_DeletedWithoutARequestIsWrittenAgain(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a", "b")
		r.withSnapshot("s", "a")
		for _, name := range append(r.withGroup("g", "a", "b"), "s") {
			r.snapshotAgain(name)
			if _, err := r.host.GetSnapshot(r.Context(), backend.ID(name)); err != nil {
				r.Errorf("snapshot %s is not on the disk: %v", name, err)
			}
		}
		check.Got(r.host.GetGroup(r.Context(), "g"))(r)
	})
}
