// Command holdfast serves and manages volumes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-storage/holdfast/printable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", printable.Lines(err.Error())) // it may have the words of others
	}
	os.Exit(exitCode(err))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	root := newRoot()
	args = knownFlags(root, args, os.Stderr)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	root.SetOut(out)
	return root.ExecuteContext(ctx)
}
