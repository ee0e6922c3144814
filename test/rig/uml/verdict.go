package uml

import "regexp"

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
