// Values writes what the values of the Helm chart may be, as the CRD of the StorageCluster says it, as a JSON Schema, or as
// a table in the README of the chart; or a table of the fields of a kind, with those of examples. A page is copied from
// standard input.
//
//	values schema CRD
//	values readme CRD
//	values fields CRD EXAMPLES
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := write(os.Args[1], os.Args[2], os.Args[3:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(as, crd string, example ...string) error {
	if as == "fields" {
		rows, err := fields(crd, example[0])
		if err != nil {
			return err
		}
		return intoPage("deploy/crds/"+filepath.Base(crd), rows)
	}
	document, err := values(crd)
	if err != nil {
		return err
	}
	if as == "readme" {
		var rows strings.Builder
		rows.WriteString("| value | |\n| --- | --- |\n")
		properties := document["properties"].(map[string]any)
		for _, name := range []string{"image", "imagePullSecrets", "global", "defaultClass", "singleNode", "controller", "node", "cluster", "monitoring", "serviceAccount", "crds"} {
			describe(&rows, name, properties[name].(map[string]any))
		}
		return intoPage("values.schema.json", rows.String())
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(document)
}

// intoPage copies a page from standard input to standard output, with rows between the lines that mark their place.
func intoPage(source, rows string) error {
	begin, end := "<!-- written by make generate from "+source+" -->\n", "<!-- end -->\n"
	page, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("the page has no place for the table, between the lines\n%s%s", begin, end)
	}
	_, err = os.Stdout.WriteString(before + begin + rows + end + after)
	return err
}

// describe writes the row of a value, or those of what is in it, but of no field of a field of the StorageCluster.
func describe(rows *strings.Builder, path string, schema map[string]any) {
	inner, _ := schema["properties"].(map[string]any)
	top, _, isField := strings.Cut(path, ".")
	if ofSpec := top == "cluster" || top == "controller" || top == "node"; inner == nil || isField && ofSpec {
		if description, _ := schema["description"].(string); description != "" { // one that is refused has none
			fmt.Fprintf(rows, "| `%s` | %s |\n", path, inCell(description))
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(inner)) {
		describe(rows, path+"."+name, inner[name].(map[string]any))
	}
}

func inCell(text string) string { return strings.NewReplacer("\n", " ", "|", "\\|").Replace(text) }
