package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes the report for people.
func (r *Report) Text(out io.Writer, now time.Time) error {
	p := &page{out: out}
	if c := r.Cluster; c != nil {
		p.linef("StorageCluster %s: %s, %d/%d nodes ready, version %s, %d volumes, %d snapshots",
			c.Name, cmp.Or(string(c.Phase), "not looked at yet"), c.ReadyNodes, c.DesiredNodes, cmp.Or(c.Version, "unknown"), r.Volumes, r.Snapshots)
		if c.Upgrade != "" {
			p.linef("StorageUpgrade %s is at work", c.Upgrade)
		}
		if c.Message != "" {
			p.linef("%s", c.Message)
		}
	}
	r.places(p)
	if len(r.Unwell) > 0 {
		p.table("NOT WELL", "CLAIM", "NODE", "POOL", "PHASE", "MESSAGE")
		for _, u := range r.Unwell {
			p.row(strings.ToLower(u.Kind)+"/"+u.Name, u.ClaimRef.String(), u.Node, u.Pool, string(u.Phase), u.Message)
		}
	}
	if len(r.Warnings) > 0 {
		p.table("WARNED", "OBJECT", "REASON", "TIMES", "MESSAGE")
		for _, w := range r.Warnings {
			p.row(ago(now.Sub(w.Time)), w.Object, w.Reason, strconv.Itoa(w.Count), w.Message)
		}
	}
	p.end()
	p.linef("")
	for _, hidden := range r.Hidden {
		p.linef("Not looked at: %s", hidden)
	}
	verdict := "All is well."
	if !r.Well {
		verdict = "Not well: " + strings.Join(r.Why, "; ") + ". holdfast doctor looks for the cause."
	}
	p.linef("%s", verdict)
	return p.err
}

// places are where volumes are.
func (r *Report) places(p *page) {
	if len(r.Nodes) > 0 {
		p.table("NODE", "READY", "VERSION", "VOLUMES", "MESSAGE")
		for _, n := range r.Nodes {
			p.row(n.Name, yes(n.Ready), n.Version, strconv.Itoa(n.Volumes), n.Message)
		}
	}
	if len(r.Servers) > 0 {
		p.table("NFS SERVER", "STATUS", "TARGET", "ON", "EXPORTS", "CLIENTS", "MESSAGE")
		for _, s := range r.Servers {
			p.row(s.Name, string(s.Phase), s.Endpoint, s.Node, strconv.Itoa(s.Exports), strconv.Itoa(s.Clients), s.Message)
		}
	}
	if len(r.Pools) > 0 {
		p.table("POOL", "NODE", "ENGINE", "CAPACITY", "PROMISED", "USED", "AVAILABLE", "VOLUMES", "MESSAGE")
		for _, o := range r.Pools {
			p.row(o.Name, o.Node, o.Engine, size(o.Capacity), size(o.Promised), size(o.Used), size(o.Available), strconv.Itoa(o.Volumes), o.Message)
		}
	}
}

// page is text with tables in it.
type page struct {
	out  io.Writer
	rows *tabwriter.Writer
	err  error
}

func (p *page) linef(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil {
		p.err = err
	}
}

func (p *page) table(columns ...string) {
	p.end()
	p.linef("")
	p.rows = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	p.row(columns...)
}

// row keeps what others wrote on one line.
func (p *page) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(strings.Join(strings.Fields(cell), " "), "-")
	}
	if _, err := fmt.Fprintln(p.rows, strings.Join(cells, "\t")); err != nil {
		p.err = err
	}
}

func (p *page) end() {
	if p.rows == nil {
		return
	}
	if err := p.rows.Flush(); err != nil {
		p.err = err
	}
	p.rows = nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// ago is an age as kubectl has it.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
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
