package monitoring

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// ofTheProgram are the alerts that need a process to be there or not; the real program makes them fire and clear.
var ofTheProgram = []string{"HoldfastTargetDown", "HoldfastAbsent"}

// player serves the series of one history as a process does: one value after the other of the part in which the alert
// fires, and of the part in which it is clear once good is set.
type player struct {
	history
	good  *atomic.Bool
	since map[bool]*atomic.Int64 // how many samples of a part it has served
}

func (p player) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	at, good := p.fires, p.good.Load()
	if good {
		at = p.clears
	}
	n := p.since[good].Add(1)
	for name, values := range p.series {
		if first, step, ends := partAt(values, at); !ends {
			fmt.Fprintf(w, "%s %d\n", name, first+step*n)
		}
	}
}

var partPattern = regexp.MustCompile(`^(?:(_)|(\d+)\+(\d+))x(\d+)$`)

// partAt is the part of values in which a minute is. A series may end.
func partAt(values, minute string) (first, step int64, ends bool) {
	left := number(strings.TrimSuffix(minute, "m"))
	for part := range strings.FieldsSeq(values) {
		m := partPattern.FindStringSubmatch(part)
		if m == nil {
			panic(part + ": a history has parts such as 95+0x60 and _x60")
		}
		count := number(m[4])
		if m[1] == "" { // what comes after the first sample
			count++
		}
		if left < count {
			return number("0" + m[2]), number("0" + m[3]), m[1] != ""
		}
		left -= count
	}
	return 0, 0, true
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func TestAlerts_EachFiresAndClearsInARealPrometheusThatScrapesItsHistory(t *testing.T) {
	program(t, "prometheus")
	var good atomic.Bool
	targets := map[string]string{}
	for alert, h := range histories {
		if slices.Contains(ofTheProgram, alert) {
			continue
		}
		served := httptest.NewServer(player{h, &good, map[bool]*atomic.Int64{false: {}, true: {}}})
		t.Cleanup(served.Close)
		targets[alert] = served.Listener.Addr().String()
	}
	s := startPrometheus(t, targets)
	for alert := range targets {
		s.fires(alert, "")
	}
	good.Store(true)
	s.await("all alerts clear", func() bool { return len(s.firing()) == 0 })
}

func TestPart_OfAMinuteIsFound(t *testing.T) {
	for minute, want := range map[string]string{"0m": "1 0 false", "60m": "1 0 false", "61m": "7 2 false", "71m": "7 2 false", "72m": "0 0 true", "900m": "0 0 true"} {
		first, step, ends := partAt("1+0x60 7+2x10 _x5", minute)
		if got := fmt.Sprint(first, step, ends); got != want {
			t.Errorf("at minute %s there is %s, want %s", minute, got, want)
		}
	}
}
