package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

var errPulled = fmt.Errorf("%w: pool memory: its disk is missing", backend.ErrUnavailable)

// pull takes the pool away with all that is in it, and returns what puts it back.
func (r *rig) pull() (back func()) {
	r.Helper()
	full := r.host.Memory
	// An agent must not see the one without the other.
	r.stop()
	r.host.set(func() { r.host.broken = errPulled })
	r.host.Memory = newHost().Memory
	r.begin()
	return func() {
		r.Helper()
		r.stop()
		r.host.Memory = full
		r.host.set(func() { r.host.broken = nil })
		r.begin()
	}
}

func pulled(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1beta1.ReadyCondition)
	return ready != nil && ready.Reason == v1beta1.ReasonPoolFailing && strings.Contains(ready.Message, "its disk is missing")
}

func TestReach_VolumeOfAnUnreachablePoolIsNotLostAndIsReadyOrDeletedWhenItReturns(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.withSnapshot("s", "a")
		back := r.pull()
		wait.Until(r, "the volume's condition", func() bool { return pulled(r.volume("a").Status.Conditions) })
		wait.Until(r, "the snapshot's condition", func() bool { return pulled(r.snapshot("s").Status.Conditions) })
		v, s := r.volume("a").Status, r.snapshot("s").Status
		if v.Phase != v1beta1.PhaseUnreachable || s.Phase != v1beta1.PhaseUnreachable || v.Error == nil || v.Error.Code != v1beta1.ErrorUnavailable || v.Pool != "memory" {
			r.Errorf("the volume is %+v, the snapshot %+v", v, s)
		}
		expectCondition(r, v.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonPoolFailing)
		back()
		wait.Until(r, "the volume back", func() bool {
			return meta.IsStatusConditionTrue(r.volume("a").Status.Conditions, v1beta1.ReadyCondition)
		})
		wait.Until(r, "the snapshot back", func() bool {
			return meta.IsStatusConditionTrue(r.snapshot("s").Status.Conditions, v1beta1.ReadyCondition)
		})
		expectCondition(r, r.volume("a").Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionTrue, v1beta1.ReasonHealthy)
		if e := r.volume("a").Status.Error; e != nil {
			r.Errorf("the error stays: %+v", e)
		}
		back = r.pull()
		r.remove("a")
		r.removeSnapshot("s")
		waits := func(phase v1beta1.Phase, e *v1beta1.Error) bool {
			return phase == v1beta1.PhaseDeleting && e != nil && e.Code == v1beta1.ErrorUnavailable && strings.Contains(e.Message, "its disk is missing")
		}
		wait.Until(r, "the volume to wait", func() bool { v := r.volume("a"); return waits(v.Status.Phase, v.Status.Error) })
		wait.Until(r, "the snapshot to wait", func() bool { s := r.snapshot("s"); return waits(s.Status.Phase, s.Status.Error) })
		back()
		r.gone("a")
		r.goneSnapshots("s")
		if r.host.has("a") {
			r.Error("the volume is still on the disk")
		}
		if _, err := r.host.GetSnapshot(r.Context(), "s"); !errors.Is(err, backend.ErrNotFound) {
			r.Errorf("the snapshot is still on the disk: %v", err)
		}
	})
}

func TestReach_VolumeThatWasNeverCreatedIsDeletedThoughAPoolIsUnreachable(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.pull()
		r.host.set(func() { r.host.refuse["create a"] = errPulled })
		r.ask("a")
		wait.Until(r, "the refusal", func() bool { return r.volume("a").Status.Error != nil })
		r.remove("a")
		r.gone("a")
	})
}

func TestReach_DiscardWaitsUntilAllPoolsCanBeRead(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.stored(backend.VolumeSpec{Name: "old"})
		back := r.pull()
		r.giveUp(discard(v1beta1.SourceVolume, "old", "u1"), discard(v1beta1.SourceSnapshot, "olds", "u2"))
		for _, k := range []key{{v1beta1.SourceVolume, "old"}, {v1beta1.SourceSnapshot, "olds"}} {
			wait.Until(r, "the list", func() bool {
				n := r.agent.nodeObject()
				return n != nil && len(n.Spec.Discard) > 0
			})
			if _, err := r.agent.reconcile(context.Background(), k); !errors.Is(err, errPoolOut) {
				r.Errorf("%s: %v", k, err)
			}
		}
		back()
		r.answered()
		if r.host.has("old") {
			r.Error("what was given up is still there")
		}
	})
}

func TestReach_PoolThatTheNodeNoLongerHasIsNamedAsSuch(t *testing.T) {
	a := &Agent{Config: Config{Node: "n1", Pools: []Pool{{Name: "slow", Path: "/srv/slow"}}}}
	err := fmt.Errorf("%w: %w", errPoolOut, a.noSuchPool(place{pool: "fast", path: "/srv/fast"}))
	if reason := convert.FromPoolError(err); reason != v1beta1.ReasonNoPool || !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "/srv/fast") {
		t.Errorf("the reason of %v is %s", err, reason)
	}
}
