package bench

import (
	"slices"
	"testing"
	"time"
)

// upTo returns 1 to n milliseconds, the largest first.
func upTo(n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, time.Duration(n-i)*time.Millisecond)
	}
	return all
}

func TestPercentiles_AreValuesThatWereMeasured(t *testing.T) {
	for n, want := range map[int]struct{ p50, p99 Seconds }{
		1:   {0.001, 0},
		2:   {0.001, 0},
		3:   {0.002, 0},
		10:  {0.005, 0},
		99:  {0.050, 0},
		100: {0.050, 0.099},
		101: {0.051, 0.100},
		200: {0.100, 0.198},
	} {
		m := (&series{durations: upTo(n)}).measurement()
		var p99 Seconds // none of fewer than 100
		if m.P99 != nil {
			p99 = *m.P99
		}
		if m.P50 != want.p50 || p99 != want.p99 || m.Samples != n || m.Min != 0.001 || m.Max != Seconds(n)/1000 ||
			len(m.Values) != n || !slices.IsSorted(m.Values) {
			t.Errorf("of 1 to %d ms: %+v", n, m)
		}
	}
	if got := Percentile([]int(nil), 99); got != 0 {
		t.Errorf("of none: %d", got)
	}
}

func TestDurations_HaveOnlySignificantDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                        "0.00 ms",
		1234 * time.Microsecond:  "1.23 ms",
		9994 * time.Microsecond:  "9.99 ms",
		9999 * time.Microsecond:  "10.0 ms",
		99949 * time.Microsecond: "99.9 ms",
		99951 * time.Microsecond: "100 ms",
		999 * time.Millisecond:   "999 ms",
		1500 * time.Millisecond:  "1.50 s",
		99994 * time.Millisecond: "99.99 s",
		99996 * time.Millisecond: "100 s",
		5 * time.Minute:          "300 s",
	} {
		if got := seconds(d).String(); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestSeries_GrowsWithEachRoundAndKeepsTheWidestSpread(t *testing.T) {
	into := times{}
	at := func(ms ...int) (all []time.Time) {
		for _, n := range ms {
			all = append(all, time.Unix(1000, 0).Add(time.Duration(n)*time.Millisecond))
		}
		return all
	}
	into.add(seriesKey{PlainPod, 2}, at(0, 5), at(10, 25))
	into.add(seriesKey{PlainPod, 2}, at(100, 103), at(130, 143))
	into.add(seriesKey{BoundPod, 2}, at(7), at(3)) // an event that was reported late
	into.add(seriesKey{VolumeGone, 2}, nil, nil)
	all := into.measurements([]int{1, 2})
	if len(all) != 2 {
		t.Fatalf("got %+v", all)
	}
	if m := all[0]; m.Measure != PlainPod || m.AtOnce != 2 || m.Samples != 4 || m.Spread != 0.005 || m.Max != 0.040 || all[1].Max != 0 {
		t.Errorf("got %+v", all)
	}
}

func TestRatios_AreToPodsWithoutAClaimOfTheSameNumberAtOnce(t *testing.T) {
	into := times{}
	want := map[seriesKey]float64{{PlainPod, 1}: 1, {NewRunning, 1}: 1.5, {PlainPod, 20}: 1, {NewRunning, 20}: 1.2, {ClaimBound, 5}: 0}
	for key, ratio := range want {
		ms := key.atOnce * max(int(ratio*10), 1)
		into[key] = &series{durations: []time.Duration{time.Duration(ms) * time.Millisecond}}
	}
	for _, m := range into.measurements([]int{20, 1, 5}) {
		var ratio float64 // none to what was not measured
		if m.Ratio != nil {
			ratio = *m.Ratio
		}
		if ratio != want[seriesKey{m.Measure, m.AtOnce}] {
			t.Errorf("%s of %d: ratio %v", m.Measure, m.AtOnce, ratio)
		}
	}
}
