package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestQuantiles_AreValuesThatWereMeasured(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"median of 100", median(hundred), 50},
		{"p99 of 100", p99(hundred), 99},
		{"median of 3", median([]int{9, 1, 5}), 5},
		{"p99 of 3", p99([]int{9, 1, 5}), 9},
		{"median of 1", median([]int{7}), 7},
		{"median of none", median([]int(nil)), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestRatio_ComparesFiguresOfTheSameRound(t *testing.T) {
	// The disk became ten times faster after the first round; the volume always reached half of it.
	raw, volume := []float64{100, 1000, 1000}, []float64{50, 500, 500}
	if got := ratio(volume, raw); got != 0.5 {
		t.Errorf("got %v, want 0.5", got)
	}
}

func TestTables_HoldEveryFigure(t *testing.T) {
	r := report{
		throughput: []throughputRow{{targets[0], "random read", []float64{100 * mib}, []float64{75 * mib}, []float64{80 * mib}}},
		latency:    []latencyRow{{targets[0], "create", []time.Duration{10 * time.Millisecond}, []time.Duration{5 * time.Millisecond}}},
		sizes:      []sizesRow{{targets[0], "clone", map[string][]time.Duration{"small": {time.Millisecond}, "large": {1100 * time.Microsecond}}}},
		nfs:        []nfsRow{{"random write", []float64{100 * mib}, []float64{25 * mib}}},
		elsewhere:  "\nof another machine\n",
	}
	var out strings.Builder
	check.OK(t, r.print(&out, "header"))
	for _, want := range []string{
		"header\n",
		"| image/xfs, random read | 100 MiB/s | 75 MiB/s | 80 MiB/s | 0.75 | **0.80** |",
		"| image/xfs, create | 5.0 ms | 5.0 ms | 10.0 ms | 10.0 ms | **0.50** |",
		"| image/xfs, clone | 1.0 ms | 1.1 ms | **1.10** |",
		"| random write | 100 MiB/s | 25 MiB/s | **0.25** |",
		"\nof another machine\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

func TestFio_OutputIsParsedOrRefused(t *testing.T) {
	got, err := parseFio([]byte("fio: a warning\n" + `{"jobs": [{"read": {"io_bytes": 4096, "bw_bytes": 2048}, "write": {"io_bytes": 0, "bw_bytes": 0}}]}`))
	if err != nil || got != 2048 {
		t.Errorf("got %v, %v, want 2048", got, err)
	}
	for _, bad := range []string{"", "fio: bad option", `{"jobs": []}`, `{"jobs": [{"read": {"io_bytes": 0, "bw_bytes": 0}}]}`} {
		if got, err := parseFio([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}
