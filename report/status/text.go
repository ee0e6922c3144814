package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-storage/holdfast/printable"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// usualHeight is how many lines a report has at most where no terminal says how many fit.
const usualHeight = 40

// section is a table of the report. What needs attention comes first; what is well may be left out.
type section struct {
	header []cell
	rows   [][]cell
	bad    int                   // how many of the rows need attention
	rest   func(from int) string // says what is left out from a row on
	shown  int                   // how many rows fit
}

// overhead is the empty line and the header.
const overhead = 2

func (s *section) lines(style Style) []string {
	rows := append([][]cell{s.header}, s.rows[:s.shown]...)
	lines := append([]string{""}, style.lines(rows)...)
	if s.shown < len(s.rows) {
		lines = append(lines, style.line(cell{text: s.rest(s.shown)}))
	}
	return lines
}

// Text writes the report for people: at most one screen, unless the style wants all.
func (r *Report) Text(out io.Writer, now time.Time, s Style) error {
	head, verdict := r.head(s), r.verdict(s)
	sections := r.sections(now, s)
	fit(sections, s, cmp.Or(s.Height, usualHeight)-len(head)-len(verdict)-1) // the last line is for the cursor
	lines := head
	for _, section := range sections {
		if section.shown > 0 || len(section.rows) > 0 && s.All {
			lines = append(lines, section.lines(s)...)
		}
	}
	_, err := io.WriteString(out, strings.Join(append(lines, verdict...), "\n")+"\n")
	return err
}

// fit decides how many rows each section shows: what needs attention in any of them goes before what is well.
func fit(sections []*section, s Style, room int) {
	wanted := func(s *section) int { return s.bad }
	for _, pass := range []func(*section) int{wanted, func(s *section) int { return len(s.rows) }} {
		for grown := true; grown; {
			grown = false
			for _, o := range sections {
				if o.shown < pass(o) && (s.All || o.cost(o.shown+1)-o.cost(o.shown) <= room) {
					room -= o.cost(o.shown+1) - o.cost(o.shown)
					o.shown++
					grown = true
				}
			}
		}
	}
}

// cost is how many lines a section takes that shows so many rows. One row that is left out is as long as saying so.
func (s *section) cost(shown int) int {
	switch {
	case shown == 0:
		return 0
	case shown < len(s.rows):
		return overhead + shown + 1
	}
	return overhead + shown
}

// longest is how many lines one message takes at most.
const longest = 4

// few leaves out the end of a message that is too long.
func (s Style) few(lines []string) []string {
	if s.All || len(lines) <= longest {
		return lines
	}
	return append(lines[:longest-1], s.cut(lines[longest-1]+" "+s.glyphs().more, s.Width))
}

func (r *Report) head(s Style) []string {
	c := r.Cluster
	if c == nil {
		return []string{s.line(cell{text: fmt.Sprintf("No StorageCluster. %d volumes, %d snapshots", r.Volumes, r.Snapshots)})}
	}
	phase := cell{cmp.Or(string(c.Phase), "not looked at yet"), red}
	if r.Well {
		phase.colour = green
	}
	lines := []string{s.line(cell{"StorageCluster " + c.Name + ": ", none}, phase, cell{text: fmt.Sprintf(", %d/%d nodes ready, version %s, %d volumes, %d snapshots",
		c.ReadyNodes, c.DesiredNodes, c.versions(), r.Volumes, r.Snapshots)})}
	if c.Upgrade != "" {
		lines = append(lines, s.line(cell{text: fmt.Sprintf("StorageUpgrade %s is at work", printable.Line(c.Upgrade))}))
	}
	if c.Message != "" {
		lines = append(lines, s.few(s.wrap(c.Message))...)
	}
	return lines
}

func (c *Cluster) versions() string {
	if c.OldestVersion != "" {
		return printable.Line(c.OldestVersion + " to " + c.Version)
	}
	return cmp.Or(printable.Line(c.Version), "unknown")
}

func (r *Report) verdict(s Style) []string {
	lines := []string{""}
	for _, hidden := range r.Hidden {
		lines = append(lines, s.few(s.wrap("Not looked at: "+hidden))...)
	}
	if r.Well {
		return append(lines, s.line(cell{"All is well.", green}))
	}
	for _, line := range s.few(s.wrap("Not well: " + strings.Join(r.Why, "; ") + ". holdfast doctor looks for the cause.")) {
		lines = append(lines, s.line(cell{line, red}))
	}
	return lines
}

func (r *Report) sections(now time.Time, s Style) []*section {
	return []*section{r.unwellSection(), nodeSection("NODE", "nodes", r.Nodes), nodeSection("CEPH POOL", "Ceph pools", r.CephPools), r.serverSection(), r.poolSection(s), r.warningSection(now)}
}

func header(columns ...string) []cell {
	cells := words(columns...)
	for i := range cells {
		cells[i].colour = bold
	}
	return cells
}

// sectionOf makes the section of a list, in which what needs attention comes first. rest says what is left out.
func sectionOf[T any](header []cell, all []T, attention func(T) bool, row func(T) []cell, rest func(left []T) string) *section {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int {
		switch {
		case attention(a) == attention(b):
			return 0
		case attention(a):
			return -1
		}
		return 1
	})
	o := &section{header: header, bad: count(all, attention), rest: func(from int) string { return rest(all[from:]) }}
	for _, one := range all {
		o.rows = append(o.rows, row(one))
	}
	return o
}

// more sums up what is left out of a section.
func more[T any](left []T, what, well, ill string, isIll func(T) bool) string {
	if bad := count(left, isIll); bad > 0 {
		return fmt.Sprintf("%d more %s, %d of them %s", len(left), what, bad, ill)
	}
	return fmt.Sprintf("%d more %s, all %s", len(left), what, well)
}

func (r *Report) unwellSection() *section {
	return sectionOf(header("NOT WELL", "CLAIM", "NODE", "POOL", "PHASE", "MESSAGE"), r.Unwell, func(facts.Unwell) bool { return true },
		func(u facts.Unwell) []cell {
			row := words(strings.ToLower(u.Kind)+"/"+u.Name, u.ClaimRef.String(), u.Node, u.Pool, string(u.Phase), u.Message)
			row[4].colour = red
			return row
		}, func(left []facts.Unwell) string { return fmt.Sprintf("%d more that are not well", len(left)) })
}

func nodeSection(title, what string, all []Node) *section {
	return sectionOf(header(title, "READY", "VERSION", "VOLUMES", "MESSAGE"), all, func(n Node) bool { return !n.Ready || n.Message != "" },
		func(n Node) []cell {
			row := words(n.Name, yes(n.Ready), n.Version, strconv.Itoa(n.Volumes), n.Message)
			row[1].colour = colourOf(n.Ready)
			return row
		}, func(left []Node) string {
			return more(left, what, "ready", "not ready", func(n Node) bool { return !n.Ready })
		})
}

func (r *Report) serverSection() *section {
	attention := func(n Server) bool { return n.Message != "" }
	return sectionOf(header("NFS SERVER", "PHASE", "TARGET", "ON", "EXPORTS", "CLIENTS", "MESSAGE"), r.Servers, attention,
		func(n Server) []cell {
			row := words(n.Namespace+"/"+n.Name, string(n.Phase), n.Endpoint, n.Node, strconv.Itoa(n.Exports), strconv.Itoa(n.Clients), n.Message)
			row[1].colour = colourOf(n.Message == "")
			return row
		}, func(left []Server) string { return more(left, "NFS servers", "well", "not well", attention) })
}

// The widths of the bar of a pool.
const (
	widestBar   = 30
	narrowBar   = 10
	besidesBars = 90 // what the rest of the line takes in most cases
)

// fewPools are shown in the order of their nodes, more in that of how full they are.
const fewPools = 10

// share is how much of its file system is used.
func (p *Pool) share() float64 { return float64(p.Used) / float64(max(p.Capacity, 1)) }

// poolSection has the fullest first where there are many. Where there are several, a line sums them up.
func (r *Report) poolSection(s Style) *section {
	width := widestBar
	if s.cuts() {
		width = min(max(s.Width-besidesBars, narrowBar), widestBar)
	}
	pools := slices.Clone(r.Pools)
	if len(pools) > fewPools {
		slices.SortStableFunc(pools, func(a, b Pool) int { return cmp.Compare(b.share(), a.share()) })
	}
	columns := header("POOL", "NODE", fmt.Sprintf("%s USED %s PROMISED", s.glyphs().used, s.glyphs().promised), "USED", "PROMISED", "AVAILABLE", "CAPACITY", "VOLUMES", "MESSAGE")
	if s.All {
		columns = append(columns[:8:8], append(header("ENGINE", "SNAPSHOTS"), columns[8:]...)...)
	}
	row := func(p Pool) []cell {
		cells := words(p.Name, p.Node, "", size(p.Used), size(p.Promised), size(p.Available), size(p.Capacity), strconv.Itoa(p.Volumes), p.Message)
		cells[2] = s.bar(&p, width)
		if s.All {
			cells = append(cells[:8:8], append(words(p.Engine, p.Snapshot), cells[8:]...)...)
		}
		return cells
	}
	attention := func(p Pool) bool { return p.Message != "" }
	o := sectionOf(columns, pools, attention, row, func(left []Pool) string { return more(left, "pools", "well", "with a message", attention) })
	if len(pools) > 1 {
		all, rest := Pool{Name: fmt.Sprintf("all %d", len(pools))}, o.rest
		for i := range pools {
			p := &pools[i]
			all.Used, all.Promised, all.Available, all.Capacity, all.Volumes = all.Used+p.Used, all.Promised+p.Promised, all.Available+p.Available, all.Capacity+p.Capacity, all.Volumes+p.Volumes
		}
		o.rows = append([][]cell{row(all)}, o.rows...)
		o.bad++ // it is always shown
		o.rest = func(from int) string { return rest(max(from-1, 0)) }
	}
	return o
}

func (r *Report) warningSection(now time.Time) *section {
	return sectionOf(header("WARNED", "OBJECT", "REASON", "TIMES", "MESSAGE"), r.Warnings, func(facts.Event) bool { return false },
		func(w facts.Event) []cell {
			return words(duration.HumanDuration(max(now.Sub(w.LastTimestamp), 0)), w.InvolvedObject.String(), w.Reason, strconv.Itoa(w.Count), w.Message)
		}, func(left []facts.Event) string { return fmt.Sprintf("%d more warnings", len(left)) })
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

func colourOf(well bool) colour {
	if well {
		return green
	}
	return red
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// size writes bytes in a unit in which they have few digits.
func size(bytes int64) string {
	unit := 0
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	for bytes >= 10240 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}
