// Command holdfast serves volumes and looks after them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		os.Exit(1)
	}
}

// errUsage is an error in how the program was called.
var errUsage = errors.New("run with --help for what is allowed")

// command is one subcommand. What it takes is given as flags, and nothing else.
type command struct {
	name    string
	summary string // one line
	text    string // the rest of its help, after the usage line
	// prepare defines the flags and returns what runs once they are parsed.
	prepare func(flags *flag.FlagSet) func(ctx context.Context, out io.Writer) error
}

var commands = []command{
	controllerCommand, nodeCommand, nfsCommand, standaloneCommand, statusCommand, doctorCommand, volumesCommand, renderCommand,
	benchCommand, cleanupCommand, versionCommand,
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(out, usage())
		if len(args) == 0 {
			return fmt.Errorf("no command given: %w", errUsage)
		}
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], out)
		}
	}
	return fmt.Errorf("unknown command %q: %w", args[0], errUsage)
}

func (c command) run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	begin := c.prepare(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, c.help(flags))
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w: %w", c.name, err, errUsage)
	case flags.NArg() > 0:
		return fmt.Errorf("%s: %q is not a flag: %w", c.name, flags.Arg(0), errUsage)
	}
	return begin(ctx, out)
}
