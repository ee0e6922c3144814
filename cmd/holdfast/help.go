package main

import (
	"flag"
	"fmt"
	"strings"
)

func usage() string {
	var b strings.Builder
	b.WriteString("Holdfast serves the disks of a host as CSI volumes: limited, snapshotted, growing.\n\n" +
		"Usage: holdfast COMMAND [flags]\n\nCommands:\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-12s%s\n", c.name, c.summary)
	}
	b.WriteString("\nholdfast COMMAND --help tells more.\n")
	return b.String()
}

func (c command) help(flags *flag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: holdfast %s [flags]\n\n%s.\n%s\n", strings.TrimSpace(c.name+" "+c.takes), c.summary, c.text)
	if len(c.verbs) > 0 {
		fmt.Fprintf(&b, "Verbs, of which the first is meant where none is given:\n")
		for _, verb := range c.verbs {
			fmt.Fprintf(&b, "  %-16s%s\n", strings.TrimSpace(verb.name+" "+verb.takes), verb.summary)
		}
		fmt.Fprintf(&b, "holdfast %s VERB --help tells more.\n\n", c.name)
	}
	b.WriteString("Flags:\n")
	flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		dashes := "--"
		if len(f.Name) == 1 {
			dashes = "-"
		}
		fmt.Fprintf(&b, "  %s%s %s\n", dashes, f.Name, strings.ToUpper(value))
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(&b, "        %s\n", line)
		}
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			fmt.Fprintf(&b, "        default: %s\n", f.DefValue)
		}
	})
	return b.String()
}
