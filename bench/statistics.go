package bench

import (
	"fmt"
	"slices"
	"time"
)

// Seconds is a duration in JSON.
type Seconds float64

// String formats with the significant digits.
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

// percentile returns the smallest value that at least p of 100 values do not exceed. The values must be sorted and not
// empty.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// leastForP99 is the number of samples from which on the p99 differs from the maximum.
const leastForP99 = 100

// series has the samples of one measure in rounds of one size.
type series struct {
	durations []time.Duration
	spread    time.Duration // maximum time between the first and the last start in a round
}

type seriesKey struct {
	measure Measure
	atOnce  int
}

// times has all samples.
type times map[seriesKey]*series

// add adds the samples of one round to a series.
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
		// Events of two watches may arrive in the wrong order.
		into[key].durations = append(into[key].durations, max(to.Sub(from), 0))
	}
	first, last := slices.MinFunc(begun, time.Time.Compare), slices.MaxFunc(begun, time.Time.Compare)
	into[key].spread = max(into[key].spread, last.Sub(first))
}
