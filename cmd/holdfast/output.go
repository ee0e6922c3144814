package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the format that -o chooses.
type output struct {
	format  string
	allowed []string
}

// tableFormats are those of a command that prints tables for people.
var tableFormats = []string{"table", "wide", "json", "yaml"}

// outputFlag adds -o; the first format is the default.
func outputFlag(c *cobra.Command, formats ...string) *output {
	o := &output{format: formats[0], allowed: formats}
	c.Flags().VarP(o, "output", "o", "`format` of what is printed: "+o.alternatives())
	return o
}

func (o *output) alternatives() string {
	last := len(o.allowed) - 1
	return strings.Join(o.allowed[:last], ", ") + " or " + o.allowed[last]
}

func (o *output) String() string { return o.format }

// Type is for pflag.Value.
func (o *output) Type() string { return "format" }

func (o *output) Set(s string) error {
	if !slices.Contains(o.allowed, s) {
		return fmt.Errorf("it must be %s", o.alternatives())
	}
	o.format = s
	return nil
}

// print writes a value as JSON or YAML, or calls text for the other formats.
func (o *output) print(out io.Writer, value any, text func(wide bool) error) error {
	switch o.format {
	case "json":
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case "yaml":
		return printYAML(out, value)
	}
	return text(o.format == "wide")
}

func printYAML(out io.Writer, value any) error {
	data, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
