package v1beta1

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestDuration_IsReadAsPeopleWriteIt(t *testing.T) {
	for text, want := range map[Duration]time.Duration{
		"0": 0, "0s": 0, "0d": 0, "007d": 7 * day,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "2w": 14 * day, "1w1d": 8 * day, "1.5d": 36 * time.Hour,
		"0.5w": 84 * time.Hour, "1h0m0s": time.Hour, "1.5h": 90 * time.Minute, "1m1h": 61 * time.Minute, "1d1d": 2 * day,
		"100ns": 100, "1.5µs": 1500, "1.5μs": 1500, "1us": time.Microsecond, "3ms": 3 * time.Millisecond, "0.000000001d": 86400,
		"9999d": 9999 * day, "999w": 999 * 7 * day, "99999h": 99999 * time.Hour,
		"9999d9999d9999d9999d9999d9999d9999d9999d": 8 * 9999 * day,
	} {
		if got, err := text.Parse(); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestDuration_UnreadableIsNamedWithExamples(t *testing.T) {
	for _, text := range []Duration{
		"", " ", "7", "d", "7 d", "7d ", " 7d", "-7d", "+7d", "7D", "7days", "1y", "1M", "1_000s", "1,5h", "1e3s", "1e400s", "NaN", "Inf", "٧d", "１d",
		".5h", "1.h", "1..5h", "10000d", "1000w", "100000h", "0x1s", "1d\n", "\n1d", "1d\x00", "00", "0.0", "1d-1h", "PT1H",
		"1h1h1h1h1h1h1h1h1h", Duration(strings.Repeat("9", 30) + "s"), Duration(strings.Repeat("1s", 5000)), "1s1.0000000001s",
	} {
		got, err := text.Parse()
		if err == nil {
			t.Errorf("%.80q was read as %s", text, got)
			continue
		}
		if m := err.Error(); !strings.Contains(m, "7d or 1d12h") || len(m) > 400 {
			t.Errorf("%.80q: %s", text, m)
		}
	}
}

func TestDuration_OmittedIsTheDefault(t *testing.T) {
	var none *Duration
	if got, err := none.Or(time.Hour); err != nil || got != time.Hour {
		t.Errorf("left out: %s, %v", got, err)
	}
	if got, err := new(Duration("0s")).Or(time.Hour); err != nil || got != 0 {
		t.Errorf("0s: %s, %v", got, err)
	}
	if _, err := new(Duration("soon")).Or(time.Hour); err == nil {
		t.Error("soon was read")
	}
}

func TestDuration_WrittenByGoIsReadAgain(t *testing.T) {
	times := []time.Duration{0, 1, 999, time.Microsecond, 1500, day, 7 * day, 10 * 365 * day, 90 * time.Second}
	for range 2000 {
		times = append(times, time.Duration(rand.Int64N(int64(math.MaxInt64)>>rand.IntN(40)))%(99999*time.Hour))
	}
	for _, want := range times {
		if got, err := DurationOf(want).Parse(); err != nil || got != want {
			t.Errorf("%s was written as %s and read as %s, %v", want, *DurationOf(want), got, err)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"7d", "1d12h", "0", "", "-1", "1_000", "١", "NaN", "1e400", "0.1", "1.5µs", "9999d9999d9999d9999d9999d9999d9999d9999d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Duration(text).Parse()
		if err != nil {
			return
		}
		if got < 0 {
			t.Errorf("%q is %s", text, got)
		}
		if goes, err := time.ParseDuration(text); err == nil && goes != got {
			t.Errorf("%q is %s, in Go %s", text, got, goes)
		}
	})
}
