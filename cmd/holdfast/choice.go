package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is a flag with one of a few values.
type choice struct {
	value   string
	allowed []string
	kind    string
}

// choiceFlag adds one; the first value is the default.
func choiceFlag(flags *pflag.FlagSet, name, short, kind, usage string, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed, kind: kind}
	flags.VarP(c, name, short, fmt.Sprintf("`%s` %s: %s", kind, usage, c.alternatives()))
	return c
}

func (c *choice) alternatives() string {
	last := len(c.allowed) - 1
	return strings.Join(c.allowed[:last], ", ") + " or " + c.allowed[last]
}

func (c *choice) String() string { return c.value }

// Type is for pflag.Value.
func (c *choice) Type() string { return c.kind }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("it must be %s%s", c.alternatives(), didYouMean(nearest(s, c.allowed), ""))
	}
	c.value = s
	return nil
}

// nearest are the names that a mistyped one may be meant as. Only commands have suggestions.
func nearest(typed string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(typed)
}
