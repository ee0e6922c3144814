package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Steps prints what is being done and how long it took.
type Steps struct{ out io.Writer }

// Do runs one step. The step may report its progress, and returns what it did, "" for nothing worth printing.
func (s Steps) Do(ctx context.Context, name string, f func(ctx context.Context, progress func(string)) (string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begin := time.Now()
	took := func() float64 { return time.Since(begin).Seconds() }
	said, err := f(ctx, func(text string) { fmt.Fprintf(s.out, "   %-24s %6.1fs  %s\n", name, took(), text) })
	if err != nil {
		fmt.Fprintf(s.out, "!! %-24s %6.1fs  failed\n", name, took())
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(s.out, "== %-24s %6.1fs  %s\n", name, took(), said)
	return nil
}
