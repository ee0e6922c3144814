package measure

import (
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestSpeed_OfWhatFioMovedOrRefused(t *testing.T) {
	got, err := Speed(`fio: a warning
{"jobs": [{"read": {"io_bytes": 4096, "bw_bytes": 2048}, "write": {"io_bytes": 0, "bw_bytes": 0}}]}`)
	if err != nil || got != 2048 {
		t.Errorf("got %v, %v, want 2048", got, err)
	}
	for _, bad := range []string{"", "fio: bad option", `{"jobs": []}`, `{"jobs": [{"read": {"io_bytes": 0, "bw_bytes": 0}}]}`} {
		if got, err := Speed(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestInTurns_RatiosAreOfFiguresOfTheSameRound(t *testing.T) {
	// The disk became ten times faster after the first round; the volume always reached half of it.
	var order []int
	speeds := check.Got(InTurns(3, 2, func(thing, round int) (float64, error) {
		order = append(order, thing)
		return []float64{100, 1000, 1000}[round] / float64(thing+1), nil
	}))(t)
	if got := Ratio(speeds[1], speeds[0]); got != 0.5 || !slices.Equal(order, []int{0, 1, 1, 0, 0, 1}) {
		t.Errorf("got %v of %v, measured in the order %v", got, speeds, order)
	}
}
