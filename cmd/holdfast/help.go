package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func help(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", c.UseLine(), c.Short)
	if c.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(c.Long))
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	for _, group := range append(c.Groups(), &cobra.Group{Title: "Commands:"}) {
		helpOfGroup(&b, c, group)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help shows details.\n", c.CommandPath())
	}
	if flags := c.LocalFlags(); flags.HasAvailableFlags() {
		b.WriteString("\nFlags:\n")
		flags.VisitAll(func(f *pflag.Flag) { helpOfFlag(&b, f) })
	}
	return b.String()
}

func helpOfGroup(b *strings.Builder, c *cobra.Command, group *cobra.Group) {
	title := "\n" + group.Title + "\n"
	for _, verb := range c.Commands() {
		if verb.GroupID != group.ID || !verb.IsAvailableCommand() && verb.Name() != "help" {
			continue
		}
		fmt.Fprintf(b, "%s  %-16s%s\n", title, verb.Use, verb.Short)
		title = ""
	}
}

func helpOfFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, text := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	fmt.Fprintf(b, "  %s\n", strings.TrimSpace(name+" "+strings.ToUpper(value)))
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(b, "        %s\n", line)
	}
	if preset := f.DefValue; preset != "" && preset != "0" && preset != "0s" && preset != "false" {
		fmt.Fprintf(b, "        default: %s\n", preset)
	}
}
