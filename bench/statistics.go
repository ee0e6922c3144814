package bench

import (
	"cmp"
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

// Percentile returns the smallest value that at least p of 100 values do not exceed, and the zero value of none.
func Percentile[T cmp.Ordered](values []T, p int) (value T) {
	if rank := (len(values)*p + 99) / 100; rank > 0 {
		value = slices.Sorted(slices.Values(values))[rank-1]
	}
	return value
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

// add adds the samples of a round: the times between two events of each plan that had both.
func (b *Bench) add(into times, measure Measure, atOnce int, plans []plan, from, to event) {
	var begun, ended []time.Time
	b.seen.read(func() {
		for _, p := range plans {
			if first, last := b.seen.at(from, p), b.seen.at(to, p); !first.IsZero() && !last.IsZero() {
				begun, ended = append(begun, first), append(ended, last)
			}
		}
	})
	into.add(seriesKey{measure, atOnce}, begun, ended)
}

func (t times) add(key seriesKey, begun, ended []time.Time) {
	if len(begun) == 0 {
		return
	}
	if t[key] == nil {
		t[key] = &series{}
	}
	for i := range begun {
		// Events of two watches may arrive in the wrong order.
		t[key].durations = append(t[key].durations, max(ended[i].Sub(begun[i]), 0))
	}
	first, last := slices.MinFunc(begun, time.Time.Compare), slices.MaxFunc(begun, time.Time.Compare)
	t[key].spread = max(t[key].spread, last.Sub(first))
}
