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
	"slices"
	"strings"
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

// command is one subcommand, or a verb of one. What it takes is given as flags, and one name where it says so.
type command struct {
	name    string
	summary string // one line
	text    string // the rest of its help, after the usage line
	takes   string // what its one argument is called; empty: it has none
	verbs   []command
	// prepare defines the flags and returns what runs once they are parsed.
	prepare func(flags *flag.FlagSet) func(ctx context.Context, out io.Writer) error
}

var commands = []command{
	controllerCommand, nodeCommand, nfsCommand, standaloneCommand, statusCommand, doctorCommand, volumesCommand, snapshotsCommand,
	renderCommand, benchCommand, cleanupCommand, versionCommand,
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

// run is of the verb, if the command has some and one is given.
func (c command) run(ctx context.Context, args []string, out io.Writer) error {
	if len(c.verbs) > 0 && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(c.verbs, func(verb command) bool { return verb.name == args[0] })
		if i < 0 {
			return fmt.Errorf("%s: %q is none of its verbs, which are %s: %w", c.name, args[0], strings.Join(c.verbNames(), ", "), errUsage)
		}
		verb := c.verbs[i]
		verb.name = c.name + " " + verb.name
		return verb.run(ctx, args[1:], out)
	}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	begin := c.prepare(flags)
	given, err := parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, c.help(flags))
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w: %w", c.name, err, errUsage)
	case len(given) > 0 && c.takes == "":
		return fmt.Errorf("%s: %q is not a flag: %w", c.name, given[0], errUsage)
	case len(given) == 0 && c.takes != "":
		return fmt.Errorf("%s: %s is missing: %w", c.name, c.takes, errUsage)
	case len(given) > 1:
		return fmt.Errorf("%s takes one %s, and %q is another: %w", c.name, c.takes, given[1], errUsage)
	}
	return begin(ctx, out)
}

// parse reads flags before and behind arguments, which are flags.Args() afterwards.
func parse(flags *flag.FlagSet, args []string) (given []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return given, flags.Parse(append([]string{"--"}, given...))
		}
		given, args = append(given, flags.Arg(0)), flags.Args()[1:]
	}
}

func (c command) verbNames() (names []string) {
	for _, verb := range c.verbs {
		names = append(names, verb.name)
	}
	return names
}
