package uml

import (
	"regexp"
	"slices"
	"strings"
)

// Verdict is how a test that ran on a machine ended: PASS, FAIL or SKIP.
type Verdict struct{ Test, Result string }

var verdict = regexp.MustCompile(`(?m)^( *)--- (PASS|FAIL|SKIP): (\S+) \(\S+\)$`)

// Verdicts finds in the output of tests how each ended. Of the parts of a test only those that were skipped count as
// tests of their own: what is here is what can only run here.
func Verdicts(output string) (all []Verdict) {
	for _, v := range verdict.FindAllStringSubmatch(output, -1) {
		if v[1] == "" || v[2] == "SKIP" {
			all = append(all, Verdict{v[3], v[2]})
		}
	}
	return all
}

// gaveUp is what the Go runtime and the C library say before they end a program because a system call failed that cannot.
var gaveUp = []string{"epollwait on fd ", "The futex facility returned an unexpected error code"}

// Broke says whether a program ended by a fault of the machine: seldom a system call fails there with ENOSYS that this
// kernel has. Nothing is known of the program then, and another machine may run it.
func Broke(output string) bool {
	return slices.ContainsFunc(gaveUp, func(text string) bool { return strings.Contains(output, text) })
}
