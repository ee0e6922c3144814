package admin

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-storage/holdfast/printable"
)

type table struct {
	out     *tabwriter.Writer
	columns int
	err     error
}

// newTable returns a table that has additional columns if wide.
func newTable(out io.Writer, wide bool, columns []string, more ...string) *table {
	if wide {
		columns = append(columns, more...)
	}
	t := &table{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), columns: len(columns)}
	t.row(columns...)
	return t
}

// row ignores cells without a column. The text of a cell may be of others.
func (t *table) row(cells ...string) {
	cells = cells[:t.columns]
	for i, cell := range cells {
		cells[i] = cmp.Or(printable.Line(cell), "-")
	}
	if _, err := fmt.Fprintln(t.out, strings.Join(cells, "\t")); err != nil {
		t.err = err
	}
}

func (t *table) end() error {
	if t.err != nil {
		return t.err
	}
	return t.out.Flush()
}
