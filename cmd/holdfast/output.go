package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/printable"
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
		var document bytes.Buffer
		e := json.NewEncoder(&document)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(value); err != nil {
			return err
		}
		_, err := out.Write(printable.JSON(document.Bytes()))
		return err
	case "yaml":
		return printYAML(out, value)
	}
	return text(o.value == "wide")
}

// between is the line between two values that are printed one after the other.
func (o *output) between() string {
	if o.value == "yaml" {
		return documentSeparator
	}
	return ""
}

const documentSeparator = "---"

func printYAML(out io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		data, err = yaml.JSONToYAML(printable.JSON(data)) // it reads no control characters that are not escaped
	}
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
