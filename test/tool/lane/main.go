// Command lane runs the lanes of this repository's tests, one after another, and sums up at the end.
//
//	lane gate                  what must pass before a change lands: make test
//	lane all                   what has changed in the others since it passed: make test-all
//	lane status                how these are on this tree: make test-status
//	lane NAME...               these lanes, whole
//	lane stress PACKAGE.TEST N one test, N times: make stress, which runs it beside a neighbour
//
// A test that fails is run once more, alone, after its lane. One that passes then has flaked: it is printed last and
// written to test/flaky.tsv, and more than a few of them fail the run.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Print(usage())
		return nil
	}
	r, err := newRunner(ctx, os.Stdout)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "status" && len(args) == 1:
		return r.status(ctx)
	case args[0] == "stress" && len(args) == 3:
		return r.stress(ctx, args[1], args[2])
	case args[0] == "all" && len(args) == 1:
		return r.all(ctx)
	}
	lanes, err := choose(args)
	if err != nil {
		return err
	}
	return r.lanes(ctx, lanes, false, 0)
}

// all runs what has changed in the lanes beside the gate, and begins none after the time of BUDGET.
func (r *runner) all(ctx context.Context) error {
	budget, err := time.ParseDuration(cmp.Or(os.Getenv("BUDGET"), "150m"))
	if err != nil {
		return fmt.Errorf("BUDGET=%s is no duration: give one such as 150m", os.Getenv("BUDGET"))
	}
	lanes, err := r.byAge(rest)
	if err != nil {
		return err
	}
	ran := r.lanes(ctx, lanes, true, budget)
	r.printf("\n== lanes on this tree\n")
	return errors.Join(ran, r.status(ctx))
}

func (r *runner) lanes(ctx context.Context, lanes []lane, resume bool, budget time.Duration) error {
	begun := time.Now()
	var outcomes []outcome
	for _, l := range lanes {
		if budget > 0 && time.Since(begun) > budget {
			r.printf("\n== the time of %s is over: make test-all goes on from here\n", budget)
			break
		}
		outcomes = append(outcomes, r.lane(ctx, l, resume))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(r.sum(outcomes), ctx.Err())
}

// choose returns the lanes of these names, or says which there are.
func choose(names []string) (chosen []lane, err error) {
	all := slices.Concat(gate, rest)
	for _, name := range names {
		switch i := slices.IndexFunc(all, func(l lane) bool { return l.name == name }); {
		case name == "gate":
			chosen = append(chosen, gate...)
		case i >= 0:
			chosen = append(chosen, all[i])
		default:
			return nil, fmt.Errorf("there is no lane %q\n%s", name, usage())
		}
	}
	return chosen, nil
}

func usage() string {
	var text strings.Builder
	text.WriteString("make lane-NAME runs one lane, make test those of the gate, make test-all the others.\n\n")
	for _, l := range slices.Concat(gate, rest) {
		fmt.Fprintf(&text, "  %-14s %s\n", l.name, l.about)
	}
	return text.String()
}
