// Command lane runs the lanes of this repository's tests, one after another, and sums up at the end.
//
//	lane gate       what must pass before a change lands: make test
//	lane all        the lanes beside it: make test-all
//	lane NAME...    these
//
// A test that fails is run once more, alone, after its lane. One that passes then has flaked: it is printed last and
// written to test/flaky.tsv, and more than a few of them fail the run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
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
	lanes, err := choose(args)
	if err != nil {
		return err
	}
	r, err := newRunner(ctx, os.Stdout)
	if err != nil {
		return err
	}
	var outcomes []outcome
	for _, l := range lanes {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		outcomes = append(outcomes, r.lane(ctx, l))
	}
	return r.sum(outcomes)
}

// choose returns the lanes of these names, or says which there are.
func choose(names []string) (chosen []lane, err error) {
	all := slices.Concat(gate, rest)
	for _, name := range names {
		switch i := slices.IndexFunc(all, func(l lane) bool { return l.name == name }); {
		case name == "gate":
			chosen = append(chosen, gate...)
		case name == "all":
			chosen = append(chosen, rest...)
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
