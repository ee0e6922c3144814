package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestDeletion_IsRetriedAndRemovesTheDataBeforeTheObject(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.refuseDeletion("a")
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		there := make(chan bool, 10)
		r.host.set(func() {
			clear(r.host.refuse)
			r.host.enter = func(call string) {
				if call == "delete a" {
					there <- r.volume("a") != nil
				}
			}
		})
		r.gone("a")
		if !<-there || r.host.has("a") {
			r.Error("the object went first, or the volume stayed")
		}
	})
}

func TestDeletion_OfAVolumeInUseIsReportedAndRetriedOnRelease(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.RetryFirst, c.RetryLast = DefaultLease, DefaultLease } // not by chance
		r.host.refuse["delete a"] = fmt.Errorf("%w: volume a is in use on this host (loop0)", backend.ErrPrecondition)
		r.begin().withVolumes("a")
		r.remove("a")
		v := r.phase("a", v1beta1.PhaseDeleting)
		if v.Status.Error == nil || v.Status.Error.Code != v1beta1.ErrorPrecondition || v.Status.Size.Value() != 16*mib {
			r.Errorf("recorded %+v", v.Status)
		}
		c := expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, string(v1beta1.ErrorPrecondition))
		if !strings.Contains(c.Message, "loop0") {
			r.Errorf("it says %q", c.Message)
		}
		r.expectEvent(string(v1beta1.ErrorPrecondition))
		r.host.set(func() { clear(r.host.refuse) })
		r.agent.Released("a")
		r.gone("a")
	})
}

func TestDeletion_IsThatOfTheDriverOfTheNode(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.host.refuse["delete a"] = fmt.Errorf("%w: volume a is in use on this host (loop0)", backend.ErrPrecondition)
		r.change = func(c *Config) {
			c.Delete = func(ctx context.Context, id backend.ID) error {
				r.host.set(func() { clear(r.host.refuse) }) // as one that unstages it
				return r.host.Delete(ctx, id)
			}
		}
		r.begin().withVolumes("a")
		r.remove("a")
		r.gone("a")
	})
}

func TestDeletion_ObjectThatFailedOnATakenNameLeavesTheOtherVolumeAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		check.Got(r.host.Memory.Create(r.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}, Inodes: 77}))(r)
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Mode = v1beta1.ModeBlock })
		r.begin()
		if v := r.phase("a", v1beta1.PhaseFailed); v.Status.Error.Code != v1beta1.ErrorExists {
			r.Errorf("recorded %+v", v.Status.Error)
		}
		r.remove("a")
		wait.Until(r, "an object for what is on disk", func() bool { v := r.volume("a"); return v != nil && v.Labels[v1beta1.AdoptedLabel] != "" })
		v := r.phase("a", v1beta1.PhaseReady)
		if !r.host.has("a") || v.Spec.Inodes != 77 || v.Status.Size.Value() != 64*mib {
			r.Errorf("adopted as %+v", v)
		}
	})
}

func TestDeletion_ObjectWithForeignFinalizersLosesOursAlone(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.ask("a", func(v *v1beta1.Volume) { v.Finalizers = append(v.Finalizers, "example.com/other") })
		r.phase("a", v1beta1.PhaseReady)
		r.remove("a")
		wait.Until(r, "our finalizer off", func() bool { v := r.volume("a"); return len(v.Finalizers) == 1 })
		if r.host.has("a") {
			r.Error("the volume is still on the disk")
		}
		// And nothing is made for it again.
		v := r.volume("a")
		v.Labels = map[string]string{"some": "change"}
		check.Got(r.volumes.Update(r.Context(), v, metav1.UpdateOptions{}))(r)
		r.withVolumes("b")
		if r.host.has("a") || len(r.volume("a").Finalizers) != 1 {
			r.Error("it came back")
		}
	})
}

func TestDeletion_VolumeCreatedForAnObjectThatIsGoneIsRemoved(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		inside, finish := make(chan struct{}), make(chan struct{})
		r.host.enter = func(call string) {
			if call == "create a" {
				close(inside)
				<-finish
			}
		}
		r.begin().ask("a")
		<-inside
		r.patched("a", `{"metadata":{"finalizers":null}}`)
		r.remove("a")
		r.gone("a")
		close(finish)
		r.withVolumes("z")
		wait.Until(r, "the disk without it", func() bool { return r.host.count("delete a") > 0 && !r.host.has("a") })
		if v := r.volume("a"); v != nil {
			r.Errorf("it was adopted: %+v", v)
		}
	})
}

// unseenEnd stops the agent, whose cache keeps an object whose deletion it has tried in vain, and ends that object.
func (r *rig) unseenEnd(name string) {
	r.Helper()
	wait.Until(r, "the deletion in the cache of the agent", func() bool {
		o := r.agent.volumeObject(name)
		return o != nil && o.DeletionTimestamp != nil && o.Status.Phase == v1beta1.PhaseDeleting
	})
	r.stop()
	r.patched(name, `{"metadata":{"finalizers":null}}`)
	r.host.set(func() { clear(r.host.refuse) })
}

// refuseDeletion begins an agent with a volume that its host refuses to delete.
func (r *rig) refuseDeletion(name string) {
	r.Helper()
	r.host.refuse["delete "+name] = backend.ErrPrecondition
	r.begin().withVolumes(name)
}

func TestDeletion_OfAnObjectThatIsGoneLeavesTheNextVolumeOfThatNameAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.refuseDeletion("a")
		r.remove("a")
		r.unseenEnd("a")
		check.Got(r.agent.reconcile(r.Context(), key{v1beta1.SourceVolume, "a"}))(r)
		if !r.host.has("a") {
			r.Error("it was deleted for an object that is gone")
		}
	})
}

func TestDeletion_OfASnapshotWhoseObjectIsGoneLeavesItAlone(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.withSnapshot("s", "a")
		old := r.snapshot("s")
		now := metav1.Now()
		old.DeletionTimestamp = &now
		old.Spec.Deletion = &v1beta1.DeletionRequest{UID: old.UID, RequestedBy: "a test", RequestedAt: metav1.NowMicro()}
		check.OK(r, r.agent.removeSnapshot(r.Context(), old))
		if _, err := r.host.GetSnapshot(r.Context(), "s"); err != nil || r.snapshot("s") == nil {
			r.Errorf("it was deleted for an object that is gone: %v", err)
		}
	})
}

func TestDeletion_VolumeThatWasCreatedAfterTheObjectsOwnStays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.refuseDeletion("a")
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		<-time.After(2 * time.Second) // objects have the second in which their volume was created
		check.OK(r, r.host.Memory.Delete(r.Context(), "a"))
		r.stored(backend.VolumeSpec{Name: "a"})
		r.host.Write("a", []byte("of the next one"))
		r.host.set(func() { clear(r.host.refuse) })
		r.adopted("a")
		if got := string(r.host.Read("a", 100)); got != "of the next one" {
			r.Errorf("it holds %q", got)
		}
		r.remove("a") // and this object is its own
		r.gone("a")
		if r.host.has("a") {
			r.Error("it is still on the disk")
		}
	})
}
