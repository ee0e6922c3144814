package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checked is a check of a lane, with the hash of all that its result depends on.
type checked struct{ name, hash string }

// plan returns what a lane has to run: all, or with resume what has not passed on what this tree has of it.
func (r *runner) plan(ctx context.Context, l lane, resume bool, o *outcome) (checks []checked, packages []testPackage, err error) {
	checks, packages, err = r.parts(ctx, l)
	if err != nil || !l.kept() {
		return checks, packages, err
	}
	if o.kept, err = r.results(l); err != nil {
		return nil, nil, err
	}
	if o.commit, err = r.git(ctx, "rev-parse", "--short", "HEAD"); err != nil {
		return nil, nil, err
	}
	if resume {
		checks = slices.DeleteFunc(checks, func(c checked) bool { return o.kept.have(c.name, c.hash) })
		packages = slices.DeleteFunc(packages, func(p testPackage) bool { return o.kept.have(p.name(), p.hash) })
	}
	return checks, packages, nil
}

// kept reports whether the results of a lane are kept. The gate takes no longer than to find out what has changed.
func (l lane) kept() bool { return l.long }

// parts returns all that a lane has, with hashes where its results are kept.
func (r *runner) parts(ctx context.Context, l lane) (checks []checked, packages []testPackage, err error) {
	var now tree
	if l.kept() {
		if now, err = r.readTree(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range l.checks {
		checks = append(checks, checked{name, now.hash(func(file string) bool { return file != flakyFile })})
	}
	for i := range l.tests {
		g := &l.tests[i]
		found, err := r.list(ctx, g)
		if err != nil {
			return nil, nil, err
		}
		if l.kept() {
			imported, err := r.imports(ctx, g)
			if err != nil {
				return nil, nil, err
			}
			for i := range found {
				found[i].hash = now.hash(r.inputs(l, found[i], imported[found[i].path]))
			}
		}
		packages = append(packages, found...)
	}
	return checks, packages, nil
}

// status prints how each lane beside the gate is on this tree, and returns an error unless all of them have passed.
func (r *runner) status(ctx context.Context) error {
	open := 0
	for _, l := range rest {
		state, seconds, err := r.stateOf(ctx, l)
		if err != nil {
			return err
		}
		if state != "green" {
			open++
		}
		r.printf("%-14s %-40s %4d min\n", l.name, state, (seconds+59)/60)
	}
	flaky, err := os.ReadFile(filepath.Join(r.root, flakyFile))
	if err != nil {
		return err
	}
	_, tests, _ := strings.Cut(string(flaky), "\n")
	r.printf("%s", tests)
	if tests != "" || open > 0 {
		return fmt.Errorf("%d of %d lanes are not green on this tree, and %d tests are in %s", open, len(rest), strings.Count(tests, "\n"), flakyFile)
	}
	return nil
}

// stateOf says what a lane is in a few words, and how many seconds its last results took.
func (r *runner) stateOf(ctx context.Context, l lane) (state string, seconds int, err error) {
	checks, packages, err := r.parts(ctx, l)
	if err != nil {
		return "", 0, err
	}
	kept, err := r.results(l)
	if err != nil {
		return "", 0, err
	}
	for _, p := range packages {
		checks = append(checks, checked{p.name(), p.hash})
	}
	counts := map[string]int{}
	for _, c := range checks {
		one, there := kept.of[c.name]
		seconds += one.seconds
		switch {
		case !there:
			counts["missing"]++
		case one.state != passed:
			counts[one.state]++
		case one.hash != c.hash:
			counts["stale"]++
		}
	}
	var words []string
	for _, word := range []string{failed, flaked, "stale", "missing"} {
		if n := counts[word]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, word))
		}
	}
	if len(words) == 0 {
		return "green", seconds, nil
	}
	return fmt.Sprintf("%s of %d", strings.Join(words, ", "), len(checks)), seconds, nil
}

// byAge sorts lanes by their oldest result, so that each gets its turn.
func (r *runner) byAge(lanes []lane) ([]lane, error) {
	ages := map[string]time.Time{}
	for _, l := range lanes {
		kept, err := r.results(l)
		if err != nil {
			return nil, err
		}
		ages[l.name] = kept.oldest()
	}
	lanes = slices.Clone(lanes)
	slices.SortStableFunc(lanes, func(a, b lane) int { return ages[a.name].Compare(ages[b.name]) })
	return lanes, nil
}
