package agent

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestHealth_FaultOfAVolumeInUseIsReportedByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		has := func(reason string) func() bool {
			return func() bool {
				c := meta.FindStatusCondition(r.volume("a").Status.Conditions, v1beta1.HealthyCondition)
				return c != nil && c.Reason == reason
			}
		}
		for _, reason := range []backend.HealthReason{backend.NotGrown, backend.FileSystemErrors, backend.DeviceErrors} {
			r.host.set(func() { r.host.ill["a"] = backend.Condition{Abnormal: true, Reason: reason, Message: "it is ill"} })
			wait.Until(r, "the reason", has(string(reason)))
			v := r.volume("a")
			expectCondition(t, v.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, string(reason))
			r.expectEvent(string(reason))
		}
		r.host.set(func() { clear(r.host.ill) })
		wait.Until(r, "the end", has(v1beta1.ReasonHealthy))
		r.expectEvent("Repaired")
	})
}

func TestHealth_ErrorsOfAPoolsFileSystemMakeTheNodeUnhealthyAndRefuseNoVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		has := func(reason string) func() bool {
			return func() bool {
				c := meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.HealthyCondition)
				return c != nil && c.Reason == reason
			}
		}
		wait.Until(r, "health", has(v1beta1.ReasonHealthy))
		r.host.set(func() {
			r.host.pool = backend.Condition{Abnormal: true, Reason: backend.PoolErrors, Message: "pool fast: its disk"}
		})
		wait.Until(r, "the reason", has(v1beta1.ReasonFileSystem))
		n := r.node()
		if c := expectCondition(t, n.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonFileSystem); c.Message != "pool fast: its disk" {
			t.Errorf("it says %q", c.Message)
		}
		expectCondition(t, n.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		if p := n.Status.Pools[0]; p.Reason != "" || p.Message != "" {
			t.Errorf("the pool is %+v", p)
		}
		r.expectEvent(v1beta1.ReasonFileSystem)
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.pool = backend.Condition{} })
		wait.Until(r, "the end", has(v1beta1.ReasonHealthy))
		r.expectEvent("Repaired")
	})
}
