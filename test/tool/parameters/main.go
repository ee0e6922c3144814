// Parameters writes the table of the parameters of all classes into a page of Markdown, from standard input to standard
// output, between the lines that mark its place.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-storage/holdfast/parameters"
)

const (
	begin = "<!-- written by make generate from parameters/table.go -->\n"
	end   = "<!-- end -->\n"
)

func main() {
	page, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = write(os.Stdout, string(page))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(out io.Writer, page string) error {
	before, rest, begins := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("the page has no place for the table, between the lines\n%s%s", begin, end)
	}
	_, err := io.WriteString(out, before+begin+table()+end+after)
	return err
}

func table() string {
	var b strings.Builder
	b.WriteString("| of | key | allowed | default | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range []*parameters.Class{&parameters.CSI, &parameters.Plain, &parameters.Inline, &parameters.Snapshot, &parameters.GroupSnapshot} {
		for _, p := range c.Parameters {
			meaning := p.Meaning
			if key, value, is := strings.Cut(p.Needs, "="); is {
				meaning += fmt.Sprintf(". Only with `%s: %q`", key, value)
			}
			row(&b, c.Name, "`"+p.Key+"`", p.Allowed, p.Default, meaning)
		}
		if c.AllowsReserved {
			row(&b, c.Name, "`"+parameters.Reserved+"...`", "any text", "", "keys of Kubernetes and its sidecars; the driver ignores those that it does not know")
		}
	}
	return b.String()
}

func row(b *strings.Builder, cells ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
