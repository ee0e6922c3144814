package agent

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestUsage_IsReportedOnNoticeableChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		before := r.phase("a", v1beta1.PhaseReady).ResourceVersion
		r.host.set(func() { r.host.used["a"] = mib - 1 })
		from := r.host.count("list")
		wait.Until(r, "three surveys", func() bool {
			r.agent.loop.Enqueue(key{v1beta1.SourceVolume, "a"}) // work for other reasons writes it neither
			return r.host.count("list") >= from+3
		})
		if v := r.volume("a"); v.ResourceVersion != before {
			t.Errorf("a small change was written: %+v", v.Status)
		}
		r.host.set(func() { r.host.used["a"] = 5 * mib })
		wait.Until(r, "the usage", func() bool { return r.volume("a").Status.Used.Value() == 5*mib })
		if c := r.volume("a").Status.Columns; c.Used != "5Mi" {
			t.Errorf("people read %+v", c)
		}
	})
}

func TestHealth_SickAndHealthyAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.ill["a"] = backend.Condition{Abnormal: true, Message: "its image is short"} })
		healthy := func(want bool) {
			t.Helper()
			wait.Until(r, "the condition", func() bool {
				for _, c := range r.volume("a").Status.Conditions {
					if c.Type == v1beta1.HealthyCondition {
						return (c.Status == metav1.ConditionTrue) == want
					}
				}
				return false
			})
		}
		healthy(false)
		v := r.volume("a")
		if c := expectCondition(t, v.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonDamaged); c.Message != "its image is short" {
			t.Errorf("it says %q", c.Message)
		}
		if v.Status.Phase != v1beta1.PhaseReady || v.Status.Size.Value() != 16*mib {
			t.Errorf("the rest is %+v", v.Status)
		}
		r.expectEvent(v1beta1.ReasonDamaged)
		r.host.set(func() { clear(r.host.ill) })
		healthy(true)
		r.expectEvent("Repaired")
	})
}

func TestSurvey_ChangeOfUsageIsComparedWithTheSize(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		old, now, size int64
		want           bool
	}{
		{0, 0, gib, false},
		{0, mib, gib, false},
		{0, 21 * mib, gib, true},
		{21 * mib, 0, gib, true},
		{5, mib, 16 * mib, false},
		{0, mib, 16 * mib, true},
	} {
		if got := noticeable(c.old, c.now, c.size); got != c.want {
			t.Errorf("from %d to %d of %d: %t", c.old, c.now, c.size, got)
		}
	}
}
