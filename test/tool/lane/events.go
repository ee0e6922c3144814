package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of go tool test2json.
type event struct {
	Action, Test, Output string
}

// report is what the tests of a package have printed and how they ended. A test is one of the package, with its subtests.
type report struct {
	ended  map[string]string // by test: pass, fail, skip or, for one that has not ended, run
	output map[string]*strings.Builder
}

// outside is the test of what is printed by none.
const outside = ""

func read(from io.Reader, log io.Writer) (report, error) {
	r := report{ended: map[string]string{}, output: map[string]*strings.Builder{}}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)}
			}
			if err := r.add(e, log); err != nil {
				return r, err
			}
		}
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

func (r report) add(e event, log io.Writer) error {
	test, _, sub := strings.Cut(e.Test, "/")
	switch {
	case e.Action == "output":
		if r.output[test] == nil {
			r.output[test] = &strings.Builder{}
		}
		r.output[test].WriteString(e.Output)
		_, err := io.WriteString(log, e.Output)
		return err
	case test == outside || sub:
	case e.Action == "run" || e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		r.ended[test] = e.Action
	}
	return nil
}

// failed returns the tests that failed or did not end, in their order by name.
func (r report) failed() (tests []string) {
	for test, end := range r.ended {
		if end == "fail" || end == "run" {
			tests = append(tests, test)
		}
	}
	slices.Sort(tests)
	return tests
}

func (r report) count(end string) (n int) {
	for _, e := range r.ended {
		if e == end {
			n++
		}
	}
	return n
}

// said is what a test printed.
func (r report) said(test string) string {
	if b := r.output[test]; b != nil {
		return b.String()
	}
	return ""
}

// because is the line that says why a test failed: the first one of its own, with a file and a line.
func (r report) because(test string) string {
	lines := strings.Split(r.said(test), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "_test.go:") })
	j := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "panic:") })
	return strings.TrimSpace(lines[cmp.Or(max(j, 0), max(i, 0))])
}

// figures is what the tests of a lane that measures have printed, whatever they found of it.
func (r report) figures() string {
	var text strings.Builder
	for _, test := range slices.Sorted(maps.Keys(r.ended)) {
		if r.ended[test] != "skip" {
			text.WriteString(r.said(test))
		}
	}
	text.WriteString(r.said(outside))
	return text.String()
}

// raced reports whether the race detector has found something.
func (r report) raced() bool {
	for _, b := range r.output {
		if strings.Contains(b.String(), "WARNING: DATA RACE") {
			return true
		}
	}
	return false
}
