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
	out *tabwriter.Writer
	err error
}

func newTable(out io.Writer, columns ...string) *table {
	t := &table{out: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
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
