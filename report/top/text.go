package top

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-storage/holdfast/printable"
)

// Text writes the report for people, with at most so many rows; 0: all. If wide, all pods of a volume are named.
func (r *Report) Text(out io.Writer, most int, wide bool) error {
	columns := map[By]string{ByVolume: "CLAIM\tPOD\tNODE\tPOOL", ByPool: "POOL\tNODE\tIN USE", ByNode: "NODE\tIN USE"}[r.of]
	last := map[By]string{ByVolume: "\tVOLUME"}[r.of]
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tREAD/s\tWRITTEN/s\tREADS/s\tWRITES/s%s\n", columns, last)
	shown := r.Rows
	if most > 0 && len(shown) > most {
		shown = shown[:most]
	}
	for i := range shown {
		fmt.Fprintln(table, strings.Join(r.cells(&shown[i], wide), "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.notes(out, len(r.Rows)-len(shown))
}

func (r *Report) cells(row *Row, wide bool) []string {
	cells := map[By][]string{
		ByVolume: {dash(row.ClaimRef.String()), pods(row, wide), dash(row.Node), dash(row.Pool)},
		ByPool:   {dash(row.Name), dash(row.Node), strconv.Itoa(row.Volumes)},
		ByNode:   {cmp.Or(row.Name, "this host"), strconv.Itoa(row.Volumes)},
	}[r.of]
	if row.Rates == nil {
		cells = append(cells, "-", "-", "-", "-")
	} else {
		cells = append(cells, bytes(row.Rates.ReadBytes), bytes(row.Rates.WrittenBytes), operations(row.Rates.Reads), operations(row.Rates.Writes))
	}
	if r.of == ByVolume {
		cells = append(cells, row.Name)
	}
	for i, cell := range cells {
		cells[i] = printable.Line(cell)
	}
	return cells
}

// notes say what the table cannot.
func (r *Report) notes(out io.Writer, hidden int) error {
	var lines []string
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("%d more, which read and write less", hidden))
	}
	told := map[string]bool{}
	for i := range r.Rows {
		if why := r.Rows[i].Why; why != "" && !told[why] {
			told[why] = true
			lines = append(lines, "-: "+why)
		}
	}
	if r.Idle > 0 {
		lines = append(lines, fmt.Sprintf("volumes that are not in use: %d", r.Idle))
	}
	for _, s := range r.Silent {
		lines = append(lines, fmt.Sprintf("no answer from %s: %s", s.Node, s.Message))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, printable.Line(line)); err != nil {
			return err
		}
	}
	return nil
}

// pods names one, and how many there are beside it, or all. They are of the claim's namespace.
func pods(row *Row, all bool) string {
	var names []string
	for _, p := range row.PodRefs {
		names = append(names, p.Name)
	}
	if more := len(names) - 1; more > 0 && !all {
		return fmt.Sprintf("%s +%d", names[0], more)
	}
	return dash(strings.Join(names, ","))
}

func dash(s string) string { return cmp.Or(s, "-") }

// bytes has three digits at most before its unit.
func bytes(n float64) string {
	for _, unit := range []string{"", "Ki", "Mi", "Gi"} {
		if n < 999.5 {
			return short(n, unit != "") + unit
		}
		n /= 1024
	}
	return short(n, true) + "Ti"
}

func operations(n float64) string {
	if n > 0 && n < 0.5 {
		return "<1"
	}
	return short(n, false)
}

func short(n float64, fraction bool) string {
	if fraction && n < 9.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}
