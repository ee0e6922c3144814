package agent

import (
	"testing"
	"time"

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

func TestUsage_SmallChangesAreWrittenEveryTenMinutesAndAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery, c.PublishEvery = 0, 0 }
		uses := func(used int64, lasting time.Duration) int64 {
			r.host.set(func() { r.host.used["a"] = used })
			<-time.After(lasting)
			return v1beta1.Bytes(r.volume("a").Status.Used)
		}
		r.begin()
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Size.Required = size(100 * mib) })
		r.phase("a", v1beta1.PhaseReady)
		r.api.Requests()
		for minute := range 60 {
			uses(int64(minute%3)*3*mib, time.Minute)
		}
		if n := r.api.Requests()["update volumes/status"]; n == 0 || n > 6 {
			r.Errorf("small changes in an hour were written %d times", n)
		}
		if got := uses(50*mib, time.Minute); got != 50*mib {
			r.Errorf("a large change was not written within a minute: %d", got)
		}
		if got := uses(55*mib, time.Minute); got != 50*mib {
			r.Errorf("a small change was written within a minute: %d", got)
		}
		r.restart()
		if got := uses(55*mib, time.Second); got != 55*mib {
			r.Errorf("after a restart %d are reported", got)
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
		if got := noticeable(c.old, c.now, c.size, smallChange); got != c.want {
			t.Errorf("from %d to %d of %d: %t", c.old, c.now, c.size, got)
		}
	}
}
