package bench

import (
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
		1:   {0.001, -1},
		2:   {0.001, -1},
		3:   {0.002, -1},
		10:  {0.005, -1},
		99:  {0.050, -1},
		100: {0.050, 0.099},
		101: {0.051, 0.100},
		200: {0.100, 0.198},
	} {
		m := (&series{durations: upTo(n)}).measurement()
		if m.Samples != n || len(m.Values) != n || m.P50 != want.p50 || m.Min != 0.001 || m.Max != Seconds(n)/1000 {
			t.Errorf("of 1 to %d ms: %+v", n, m)
		}
		switch {
		case want.p99 < 0 && m.P99 != nil:
			t.Errorf("of %d samples the p99 is said to be %s", n, *m.P99)
		case want.p99 > 0 && (m.P99 == nil || *m.P99 != want.p99):
			t.Errorf("of 1 to %d ms the p99 is %v, want %s", n, m.P99, want.p99)
		}
	}
}

func TestValues_AreInAscendingOrder(t *testing.T) {
	m := (&series{durations: []time.Duration{3 * time.Second, time.Second, 2 * time.Second}}).measurement()
	if len(m.Values) != 3 || m.Values[0] != 1 || m.Values[1] != 2 || m.Values[2] != 3 {
		t.Errorf("got %v", m.Values)
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
	zero := time.Unix(1000, 0)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	into := times{}
	between := func(p [2]int) (time.Time, time.Time) { return at(p[0]), at(p[1]) }
	add(into, PlainPod, 2, [][2]int{{0, 10}, {5, 25}}, between)
	add(into, PlainPod, 2, [][2]int{{100, 130}, {103, 143}}, between)
	add(into, BoundPod, 2, [][2]int{{7, 3}}, between)
	add(into, VolumeGone, 2, nil, between)
	all := into.measurements([]int{1, 2})
	if len(all) != 2 {
		t.Fatalf("got %+v", all)
	}
	if m := all[0]; m.Measure != PlainPod || m.AtOnce != 2 || m.Samples != 4 || m.Spread != 0.005 || m.Max != 0.040 {
		t.Errorf("two rounds of two: %+v", m)
	}
	if m := all[1]; m.Max != 0 {
		t.Errorf("an event that was reported late took %s", m.Max)
	}
}

func TestRatios_AreToPodsWithoutAClaimOfTheSameNumberAtOnce(t *testing.T) {
	into := times{
		{PlainPod, 1}:    {durations: []time.Duration{100 * time.Millisecond}},
		{NewRunning, 1}:  {durations: []time.Duration{150 * time.Millisecond}},
		{PlainPod, 20}:   {durations: []time.Duration{time.Second}},
		{NewRunning, 20}: {durations: []time.Duration{1200 * time.Millisecond}},
		{ClaimBound, 5}:  {durations: []time.Duration{time.Second}},
	}
	for _, m := range into.measurements([]int{20, 1, 5}) {
		want := map[seriesKey]float64{{PlainPod, 1}: 1, {NewRunning, 1}: 1.5, {PlainPod, 20}: 1, {NewRunning, 20}: 1.2}
		switch ratio, ok := want[seriesKey{m.Measure, m.AtOnce}]; {
		case ok && (m.Ratio == nil || *m.Ratio != ratio):
			t.Errorf("%s of %d: ratio %v, want %v", m.Measure, m.AtOnce, m.Ratio, ratio)
		case !ok && m.Ratio != nil:
			t.Errorf("%s of %d has the ratio %v to what was not measured", m.Measure, m.AtOnce, *m.Ratio)
		}
	}
}
