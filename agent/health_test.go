package agent

import (
	"cmp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestHealth_FaultOfAVolumeIsReportedByReason(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		for _, fault := range []backend.HealthReason{"", backend.NotGrown, backend.FileSystemErrors, backend.DeviceErrors} {
			reason := cmp.Or(string(fault), v1beta1.ReasonDamaged)
			r.host.set(func() { r.host.ill["a"] = backend.Condition{Abnormal: true, Reason: fault, Message: "it is ill"} })
			c := r.condition(r.ofVolume("a"), v1beta1.HealthyCondition, metav1.ConditionFalse, reason)
			if s := r.volume("a").Status; c.Message != "it is ill" || s.Phase != v1beta1.PhaseReady || s.Size.Value() != 16*mib {
				r.Errorf("of %s it says %q, and %+v", reason, c.Message, s)
			}
			r.expectEvent(reason)
		}
		r.host.set(func() { clear(r.host.ill) })
		r.condition(r.ofVolume("a"), v1beta1.HealthyCondition, metav1.ConditionTrue, v1beta1.ReasonHealthy)
		r.expectEvent("Repaired")
	})
}

func TestHealth_ErrorsOfAPoolsFileSystemMakeTheNodeUnhealthyAndRefuseNoVolume(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.condition(r.ofNode, v1beta1.HealthyCondition, metav1.ConditionTrue, v1beta1.ReasonHealthy)
		r.host.set(func() {
			r.host.pool = backend.Condition{Abnormal: true, Reason: backend.PoolErrors, Message: "pool fast: its disk"}
		})
		c := r.condition(r.ofNode, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonFileSystem)
		if c.Message != "pool fast: its disk" {
			r.Errorf("it says %q", c.Message)
		}
		expectCondition(r, r.ofNode(), v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		if p := r.node().Status.Pools[0]; p.Reason != "" || p.Message != "" {
			r.Errorf("the pool is %+v", p)
		}
		r.expectEvent(v1beta1.ReasonFileSystem)
		r.withVolumes("a")
		r.host.set(func() { r.host.pool = backend.Condition{} })
		r.condition(r.ofNode, v1beta1.HealthyCondition, metav1.ConditionTrue, v1beta1.ReasonHealthy)
		r.expectEvent("Repaired")
	})
}
