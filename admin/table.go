package admin

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table has columns as wide as they need be.
type table struct {
	out     *tabwriter.Writer
	columns int
	err     error
}

// newTable makes a table that has more columns if it is wide.
func newTable(out io.Writer, wide bool, columns []string, more ...string) *table {
	if wide {
		columns = append(columns, more...)
	}
	t := &table{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), columns: len(columns)}
	t.row(columns...)
	return t
}

// row leaves out the cells for which there is no column.
func (t *table) row(cells ...string) {
	cells = cells[:t.columns]
	for i, cell := range cells {
		cells[i] = cmp.Or(cell, "-")
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
