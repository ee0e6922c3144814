package v1beta1

import (
	"fmt"
	"regexp"
	"time"
)

// Duration is a length of time as people write it: numbers with the units ns, us, ms, s, m, h, d (24h) and w (7d), such
// as 90s, 12h, 7d or 1d12h.
// ---
// The rule is durationForm. The digits of each number are limited, so that no sum overflows.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self.matches('^(0|([0-9]{1,18}([.][0-9]{1,9})?ns|[0-9]{1,15}([.][0-9]{1,9})?(us|µs|μs)|[0-9]{1,12}([.][0-9]{1,9})?ms|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,4}([.][0-9]{1,9})?d|[0-9]{1,3}([.][0-9]{1,9})?w){1,8})$')`,message="it must be a duration such as 90s, 15m, 12h, 7d or 1d12h: numbers with the units ns, us, ms, s, m, h, d (24h) and w (7d), at most 9999d, without a sign"
type Duration string

// durationForm and longestDuration are what the schema takes.
var durationForm = regexp.MustCompile(`^(0|([0-9]{1,18}([.][0-9]{1,9})?ns|[0-9]{1,15}([.][0-9]{1,9})?(us|µs|μs)|[0-9]{1,12}([.][0-9]{1,9})?ms|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,4}([.][0-9]{1,9})?d|[0-9]{1,3}([.][0-9]{1,9})?w){1,8})$`)

const longestDuration = 64 // characters

// durationTerm is one number with its unit.
var durationTerm = regexp.MustCompile(`([0-9.]+)([a-zµμ]+)`)

// DurationOf writes a time, which must not be negative.
func DurationOf(t time.Duration) *Duration {
	d := Duration(t.String())
	return &d
}

// Parse reads what the schema takes, and nothing else.
func (d Duration) Parse() (time.Duration, error) {
	if len([]rune(d)) > longestDuration || !durationForm.MatchString(string(d)) {
		return 0, fmt.Errorf("%.80q is not a duration such as 90s, 15m, 12h, 7d or 1d12h: it must be numbers with the units "+
			"ns, us, ms, s, m, h, d (24h) and w (7d), at most 9999d, without a sign", string(d))
	}
	var sum time.Duration
	for _, term := range durationTerm.FindAllStringSubmatch(string(d), -1) {
		number, unit, times := term[1], term[2], int64(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		t, err := time.ParseDuration(number + unit)
		if err != nil {
			return 0, fmt.Errorf("%.80q is not a duration: %w", string(d), err)
		}
		sum += time.Duration(int64(t) * times)
	}
	return sum, nil
}

// Or is the duration, or what stands for one that is left out.
func (d *Duration) Or(leftOut time.Duration) (time.Duration, error) {
	if d == nil {
		return leftOut, nil
	}
	return d.Parse()
}
