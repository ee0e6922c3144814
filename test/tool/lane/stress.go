package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// stress runs one test again and again, compiled once, in the lane that has it.
func (r *runner) stress(ctx context.Context, test, times string) error {
	n, err := strconv.Atoi(times)
	name, function, ok := cutLast(test, ".")
	if err != nil || n < 1 || !ok {
		return fmt.Errorf("test %q, %q times: give a test such as T=operator/volume.TestLoss_X, and a number from 1 on such as N=50", test, times)
	}
	l, p, err := r.find(ctx, name)
	if err != nil {
		return err
	}
	l.limit *= 4
	dir := filepath.Join(r.dir, "stress")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	packages := []testPackage{p}
	if err := r.compile(ctx, dir, packages)[0]; err != nil {
		return err
	}
	end, err := r.furnish(ctx, l)
	defer end()
	if err != nil {
		return err
	}
	failures := 0
	for range n {
		if ctx.Err() != nil {
			break
		}
		failures += min(len(r.runPackage(ctx, l, packages[0], function, &outcome{})), 1)
	}
	r.printf("%d passed, %d failed\n", n-failures, failures)
	if failures > 0 {
		return fmt.Errorf("%s failed %d of %d times", test, failures, n)
	}
	return ctx.Err()
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// find returns a package by its directory, and the last lane that has it: that runs also what is not in the gate.
func (r *runner) find(ctx context.Context, name string) (lane, testPackage, error) {
	for _, l := range slices.Backward(slices.Concat(gate, rest)) {
		for i := range l.tests {
			packages, err := r.list(ctx, &l.tests[i])
			if err != nil {
				return lane{}, testPackage{}, err
			}
			for _, p := range packages {
				if p.name() == name {
					return l, p, nil
				}
			}
		}
	}
	return lane{}, testPackage{}, fmt.Errorf("no lane has the package %s", name)
}
