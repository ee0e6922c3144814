// Command bench measures volumes against the pool they lie on, and the calls that make them against the same done by
// shell commands. Every figure that counts is a ratio of two things measured in turns in one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures what the arguments say, prints tables to out and what it is doing to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	b := &runner{scale: full, progress: progress}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&b.binary, "binary", "bin/holdfast", "the program to measure")
	flags.StringVar(&b.scratch, "scratch", os.TempDir(), "where pools are made, each a file of up to 16 GiB, one at a time")
	only := flags.String("only", "", "measure only this engine over this file system, such as image/xfs, or nfs")
	quick := flags.Bool("quick", false, "small and short: shows that everything works, its figures mean nothing")
	comparing := flags.Bool("compare", false, "compare two storage classes by the files, which holdfast bench --output json wrote of them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *comparing {
		return compare(flags.Args(), out)
	}
	if *quick {
		b.scale = short
	}
	b.report = newReport(b.scale)
	return b.all(ctx, *only, out)
}
