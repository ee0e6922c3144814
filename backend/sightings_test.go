package backend

import (
	"testing"
	"time"
)

func TestSightings_NothingIsRemovedByAWrongClock(t *testing.T) {
	start := time.Now()
	for name, test := range map[string]struct {
		deleted time.Duration // before the start, by the clocks
		seen    time.Duration // how long, by this process
		keep    time.Duration
		want    bool
	}{
		"in time":                          {25 * time.Hour, time.Hour, 24 * time.Hour, true},
		"early":                            {time.Hour, 2 * time.Hour, 24 * time.Hour, false},
		"the clock has just jumped":        {365 * 24 * time.Hour, 0, 24 * time.Hour, false},
		"it has jumped, and is not mended": {365 * 24 * time.Hour, 59 * time.Minute, 24 * time.Hour, false},
		"kept for less than an hour":       {time.Hour, 10 * time.Minute, 10 * time.Minute, true},
		"kept for no time":                 {0, 0, 0, true},
	} {
		var s Sightings
		deleted := start.Add(-test.deleted)
		s.Ripe("a", deleted, start, test.keep)
		if got := s.Ripe("a", deleted, start.Add(test.seen), test.keep); got != test.want {
			t.Errorf("%s: removed: %t", name, got)
		}
		s.Forget("a")
		if test.keep > 0 && s.Ripe("a", deleted, start.Add(test.seen), test.keep) {
			t.Errorf("%s: removed, though it is another", name)
		}
	}
}
