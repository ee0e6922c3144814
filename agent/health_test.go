package agent

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestHealth_FaultOfAVolumeInUseIsReportedByReason(t *testing.T) {
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
		r.await("the reason", has(string(reason)))
		v := r.volume("a")
		expectCondition(t, v.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, string(reason))
		r.expectEvent(string(reason))
	}
	r.host.set(func() { clear(r.host.ill) })
	r.await("the end", has(v1beta1.ReasonHealthy))
	r.expectEvent("Repaired")
}

func TestHealth_ErrorsOfAPoolsFileSystemMakeTheNodeUnhealthyAndRefuseNoVolume(t *testing.T) {
	r := newRig(t).begin()
	has := func(reason string) func() bool {
		return func() bool {
			c := meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.HealthyCondition)
			return c != nil && c.Reason == reason
		}
	}
	r.await("health", has(v1beta1.ReasonHealthy))
	r.host.set(func() {
		r.host.pool = backend.Condition{Abnormal: true, Reason: backend.PoolErrors, Message: "pool fast: its disk"}
	})
	r.await("the reason", has(v1beta1.ReasonFileSystem))
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
	r.await("the end", has(v1beta1.ReasonHealthy))
	r.expectEvent("Repaired")
}
