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
	fmt.Fprintf(&b, "Usage: holdfast %s [flags]\n\n%s.\n%s\nFlags:\n", c.name, c.summary, c.text)
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
