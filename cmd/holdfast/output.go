package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the format that -o chooses.
type output struct{ *choice }

// tableFormats are those of a command that prints tables for people.
var tableFormats = []string{"table", "wide", "json", "yaml"}

// outputFlag adds -o; the first format is the default.
func outputFlag(c *cobra.Command, formats ...string) *output {
	return &output{choiceFlag(c.Flags(), "output", "o", "format", "of what is printed", formats...)}
}

// print writes a value as JSON or YAML, or calls text for the other formats.
func (o *output) print(out io.Writer, value any, text func(wide bool) error) error {
	switch o.value {
	case "json":
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case "yaml":
		return printYAML(out, value)
	}
	return text(o.value == "wide")
}

func printYAML(out io.Writer, value any) error {
	data, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
