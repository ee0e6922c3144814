package lint

import (
	"regexp"
	"strings"
	"testing"
)

var (
	// sleep is a statement that does nothing but wait for a time: time.Sleep, which the linter refuses, by another name.
	sleep  = regexp.MustCompile(`(?m)^\s*<-time\.After\(`)
	bubble = regexp.MustCompile(`synctest\.Test\(|\binBubble\(`)
	// round is a limit that starts again in each round of a loop.
	round = regexp.MustCompile(`(?m)^\s*for[^\n]*\{\n\s*select \{\n(?:\s*case [^\n]*\n[^\n]*\n)*?\s*case <-time\.After\(`)
)

// In a bubble of synctest time is not waited for.
func TestSleep_NoTestWaitsOnTimeAfter(t *testing.T) {
	for _, file := range files(t, ".go") {
		source := read(t, file)
		if sleep.MatchString(source) && !bubble.MatchString(source) {
			t.Errorf("%s: <-time.After is a sleep here; wait for the event, or look for it with a ticker", file)
		}
		if strings.HasSuffix(file, "_test.go") && round.MatchString(source) {
			t.Errorf("%s: time.After starts again in each round; wait for the event, use a ticker, or make the limit before the loop", file)
		}
	}
}
