package bench

import (
	"fmt"
	"slices"
	"time"
)

// Seconds is a duration as it is written in JSON.
type Seconds float64

// String has as many digits as can mean something.
func (s Seconds) String() string {
	switch ms := float64(s) * 1000; {
	case ms < 9.995:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	case s < 99.995:
		return fmt.Sprintf("%.2f s", float64(s))
	}
	return fmt.Sprintf("%.0f s", float64(s))
}

func seconds(d time.Duration) Seconds { return Seconds(d.Round(time.Microsecond).Seconds()) }

// percentile is the smallest value that at least p of 100 values do not exceed. The values must be sorted, and be
// one at least.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// leastForP99 is how many samples there must be for the p99 to be another value than the largest.
const leastForP99 = 100

// series is what was measured in the same way.
type series struct {
	durations []time.Duration
	spread    time.Duration // between the first and the last beginning, at most
}

type seriesKey struct {
	measure Measure
	atOnce  int
}

// times is all that was measured.
type times map[seriesKey]*series

// add puts the times of what was done at once into a series.
func add[T any](into times, measure Measure, atOnce int, all []T, between func(T) (from, to time.Time)) {
	if len(all) == 0 {
		return
	}
	key := seriesKey{measure, atOnce}
	if into[key] == nil {
		into[key] = &series{}
	}
	var begun []time.Time
	for _, one := range all {
		from, to := between(one)
		begun = append(begun, from)
		// The events of two watches may arrive in another order than they happened.
		into[key].durations = append(into[key].durations, max(to.Sub(from), 0))
	}
	first, last := slices.MinFunc(begun, time.Time.Compare), slices.MaxFunc(begun, time.Time.Compare)
	into[key].spread = max(into[key].spread, last.Sub(first))
}
