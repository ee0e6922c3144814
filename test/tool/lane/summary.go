package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mostFlakes of a run: with more of them something is wrong with the machine or with what was changed.
const mostFlakes = 3

// flakyFile lists the tests that have flaked, with the day, and why: until they are mended, make test-all fails.
const flakyFile = "test/flaky.tsv"

// sum prints what all lanes have shown, flakes last, and returns an error unless all is well.
func (r *runner) sum(outcomes []outcome) error {
	var passed, skipped, failed int
	var flakes []flake
	r.printf("\n== summary\n")
	for _, o := range outcomes {
		state := "ok"
		if len(o.failed) > 0 {
			state = "FAILED"
		}
		r.printf("%-16s %-6s %8s  %4d passed, %d skipped\n", o.lane, state, o.took, o.passed, o.skipped)
		for _, f := range o.failed {
			r.printf("    %s\n", f)
		}
		passed, skipped, failed = passed+o.passed, skipped+o.skipped, failed+len(o.failed)
		flakes = append(flakes, o.flakes...)
	}
	for _, f := range flakes {
		r.printf("FLAKY %s: %s\n", f.test, f.because)
	}
	r.printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	err := record(filepath.Join(r.root, flakyFile), flakes)
	if failed > 0 {
		return errors.Join(fmt.Errorf("%d failed", failed), err)
	}
	if len(flakes) > mostFlakes {
		return errors.Join(fmt.Errorf("%d tests passed only at the second try, and at most %d may", len(flakes), mostFlakes), err)
	}
	return err
}

// record adds flakes to the file, unless it has them.
func record(file string, flakes []flake) error {
	known, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(known)
	for _, f := range flakes {
		if !strings.Contains(text, "\n"+f.test+"\t") {
			text += strings.Join([]string{f.test, time.Now().UTC().Format(time.DateOnly), strings.ReplaceAll(f.because, "\t", " ")}, "\t") + "\n"
		}
	}
	if text == string(known) {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
