package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestDeletion_DataIsRemovedBeforeTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		there := make(chan bool, 10)
		r.host.set(func() {
			r.host.enter = func(call string) {
				if call == "delete a" {
					there <- r.volume("a") != nil
				}
			}
		})
		r.remove("a")
		r.gone("a")
		if !<-there || r.host.has("a") {
			t.Error("the object went first, or the volume stayed")
		}
	})
}

func TestDeletion_OfAVolumeInUseIsReportedAndRetriedOnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.RetryFirst, c.RetryLast = DefaultLease, DefaultLease } // not by chance
		r.host.refuse["delete a"] = fmt.Errorf("%w: volume a is in use on this host (loop0)", backend.ErrPrecondition)
		r.begin().ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.remove("a")
		v := r.phase("a", v1beta1.PhaseDeleting)
		if v.Status.Error == nil || v.Status.Error.Code != v1beta1.ErrorPrecondition || v.Status.Size.Value() != 16*mib {
			t.Errorf("recorded %+v", v.Status)
		}
		c := expectCondition(t, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, string(v1beta1.ErrorPrecondition))
		if !strings.Contains(c.Message, "loop0") {
			t.Errorf("it says %q", c.Message)
		}
		r.expectEvent(string(v1beta1.ErrorPrecondition))
		r.host.set(func() { clear(r.host.refuse) })
		r.agent.Released("a")
		r.gone("a")
	})
}

func TestDeletion_IsThatOfTheDriverOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.refuse["delete a"] = fmt.Errorf("%w: volume a is in use on this host (loop0)", backend.ErrPrecondition)
		r.change = func(c *Config) {
			c.Delete = func(ctx context.Context, id backend.ID) error {
				r.host.set(func() { clear(r.host.refuse) }) // as one that unstages it
				return r.host.Delete(ctx, id)
			}
		}
		r.begin().ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.remove("a")
		r.gone("a")
	})
}

func TestDeletion_IsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.refuse["delete a"] = backend.ErrPrecondition
		r.begin().ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		r.host.set(func() { clear(r.host.refuse) })
		r.gone("a")
	})
}

func TestDeletion_ObjectThatFailedOnATakenNameLeavesTheOtherVolumeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		check.Got(r.host.Memory.Create(t.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}, Inodes: 77}))(t)
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Mode = v1beta1.ModeBlock })
		r.begin()
		if v := r.phase("a", v1beta1.PhaseFailed); v.Status.Error.Code != v1beta1.ErrorExists {
			t.Errorf("recorded %+v", v.Status.Error)
		}
		r.remove("a")
		wait.Until(r, "an object for what is on disk", func() bool { v := r.volume("a"); return v != nil && v.Labels[v1beta1.AdoptedLabel] != "" })
		v := r.phase("a", v1beta1.PhaseReady)
		if !r.host.has("a") || v.Spec.Inodes != 77 || v.Status.Size.Value() != 64*mib {
			t.Errorf("adopted as %+v", v)
		}
	})
}

func TestDeletion_ObjectWithForeignFinalizersLosesOursAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a", func(v *v1beta1.Volume) { v.Finalizers = append(v.Finalizers, "example.com/other") })
		r.phase("a", v1beta1.PhaseReady)
		r.remove("a")
		wait.Until(r, "our finalizer off", func() bool { v := r.volume("a"); return len(v.Finalizers) == 1 })
		if r.host.has("a") {
			t.Error("the volume is still on the disk")
		}
		// And nothing is made for it again.
		v := r.volume("a")
		v.Labels = map[string]string{"some": "change"}
		check.Got(r.volumes.Update(t.Context(), v, metav1.UpdateOptions{}))(t)
		r.ask("b")
		r.phase("b", v1beta1.PhaseReady)
		if r.host.has("a") || len(r.volume("a").Finalizers) != 1 {
			t.Error("it came back")
		}
	})
}

func TestDeletion_VolumeCreatedForAnObjectThatIsGoneIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
		check.Got(r.volumes.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
		r.remove("a")
		r.gone("a")
		close(finish)
		r.ask("z")
		r.phase("z", v1beta1.PhaseReady)
		wait.Until(r, "the disk without it", func() bool { return r.host.count("delete a") > 0 && !r.host.has("a") })
		if v := r.volume("a"); v != nil {
			t.Errorf("it was adopted: %+v", v)
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
	check.Got(r.volumes.Patch(r.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(r)
	r.host.set(func() { clear(r.host.refuse) })
}

// refusing is an agent of a host that refuses to delete a volume.
func refusing(t *testing.T, name string) *rig {
	r := newRig(t)
	r.host.refuse["delete "+name] = backend.ErrPrecondition
	return r.begin().withVolumes(name)
}

func TestDeletion_OfAnObjectThatIsGoneLeavesTheNextVolumeOfThatNameAlone(t *testing.T) {
	r := refusing(t, "a")
	r.remove("a")
	r.unseenEnd("a")
	check.Got(r.agent.reconcile(t.Context(), key{v1beta1.SourceVolume, "a"}))(t)
	if !r.host.has("a") {
		t.Error("it was deleted for an object that is gone")
	}
}

func TestDeletion_OfASnapshotWhoseObjectIsGoneLeavesItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin().withVolumes("a")
		r.askSnapshot("s", "a", nil)
		r.readySnapshot("s")
		old := r.snapshot("s")
		now := metav1.Now()
		old.DeletionTimestamp = &now
		old.Spec.Deletion = &v1beta1.DeletionRequest{UID: old.UID, RequestedBy: "a test", RequestedAt: metav1.NowMicro()}
		check.OK(t, r.agent.removeSnapshot(t.Context(), old))
		if _, err := r.host.GetSnapshot(t.Context(), "s"); err != nil || r.snapshot("s") == nil {
			t.Errorf("it was deleted for an object that is gone: %v", err)
		}
	})
}

func TestDeletion_VolumeThatWasCreatedAfterTheObjectsOwnStays(t *testing.T) {
	r := refusing(t, "a")
	r.remove("a")
	r.phase("a", v1beta1.PhaseDeleting)
	check.OK(t, r.host.Memory.Delete(t.Context(), "a"))
	r.stored(backend.VolumeSpec{Name: "a"})
	r.host.Write("a", []byte("of the next one"))
	r.host.set(func() { clear(r.host.refuse) })
	r.adopted("a")
	if got := string(r.host.Read("a", 100)); got != "of the next one" {
		t.Errorf("it holds %q", got)
	}
	r.remove("a") // and this object is its own
	r.gone("a")
	if r.host.has("a") {
		t.Error("it is still on the disk")
	}
}
