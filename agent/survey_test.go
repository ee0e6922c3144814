package agent

import (
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestUsage_IsReportedOnNoticeableChange(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.ask("a")
		before := r.phase("a", v1beta1.PhaseReady).ResourceVersion
		r.host.set(func() { r.host.used["a"] = mib - 1 })
		from := r.host.count("list")
		wait.Until(r, "three surveys", func() bool {
			r.agent.loop.Enqueue(key{v1beta1.SourceVolume, "a"}) // work for other reasons writes it neither
			return r.host.count("list") >= from+3
		})
		if v := r.volume("a"); v.ResourceVersion != before {
			r.Errorf("a small change was written: %+v", v.Status)
		}
		r.host.set(func() { r.host.used["a"] = 5 * mib })
		wait.Until(r, "the usage", func() bool { return r.volume("a").Status.Used.Value() == 5*mib })
		if c := r.volume("a").Status.Columns; c.Used != "5Mi" {
			r.Errorf("people read %+v", c)
		}
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
