package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-storage/holdfast/printable"
)

// sentences are the descriptions of the measures in the table.
var sentences = map[Measure]string{
	PlainPod:     "pod without a claim: created to Running",
	ClaimBound:   "claim: created to Bound",
	NewBound:     "pod with a new claim: created to claim Bound",
	BoundRunning: "pod with a new claim: claim Bound to Running",
	NewRunning:   "pod with a new claim: created to Running",
	BoundPod:     "pod with a bound claim: created to Running",
	VolumeGone:   "claim: deleted to volume gone",
}

// Table writes the result as a table for people.
func (r *Result) Table(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "class %s of %s, %s, %s; claims of %s, pods of %s\n", r.Class.Name, r.Class.Provisioner,
		r.Class.BindingMode, r.Class.ReclaimPolicy, r.Volume.Size, r.Volume.Image)
	where := fmt.Sprintf("on %d nodes", len(r.Cluster.Nodes))
	if len(r.Cluster.Nodes) == 1 {
		where = "on node " + r.Cluster.Nodes[0]
	}
	fmt.Fprintf(&b, "Kubernetes %s, %s; %s at %s, took %s\n\n", r.Cluster.Version, where,
		r.Program, r.Started.Format("2006-01-02 15:04:05 MST"), r.Took)
	r.rows(&b)
	list(&b, "Notes", r.Notes)
	var said []string
	for _, w := range r.Warnings {
		said = append(said, fmt.Sprintf("%d times of %d objects: %s %s: %s", w.Count, w.Objects, w.Kind, w.Reason, w.Message))
	}
	list(&b, "Warnings of the cluster", said)
	var failed []string
	for _, f := range r.Failures {
		failed = append(failed, fmt.Sprintf("%s %s, %s: %s", f.Kind, f.Name, f.Step, f.Reason))
	}
	list(&b, "Not finished", failed)
	if !r.Complete {
		b.WriteString("\nThe run ended early: figures are missing.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *Result) rows(b *strings.Builder) {
	if len(r.Measurements) == 0 {
		b.WriteString("nothing was measured\n")
		return
	}
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT ONCE\tMEASURE\tSAMPLES\tP50\tP99\tRATIO\tSPREAD")
	for i, m := range r.Measurements {
		if i > 0 && m.AtOnce != r.Measurements[i-1].AtOnce {
			fmt.Fprintln(table, strings.Repeat("\t", 6))
		}
		p99, ratio, spread := "max "+m.Max.String(), "-", "-"
		if m.P99 != nil {
			p99 = m.P99.String()
		}
		if m.Ratio != nil {
			ratio = fmt.Sprintf("%.2f", *m.Ratio)
		}
		if m.AtOnce > 1 {
			spread = m.Spread.String()
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n", m.AtOnce, sentences[m.Measure], m.Samples, m.P50, p99, ratio, spread)
	}
	table.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	b.WriteString("\nRATIO: of the P50 to that of a pod without a claim. SPREAD: between the first and the last of those at once.\n" +
		"Of fewer than 100 samples there is no P99, only a maximum.\n")
}

// listed limits the lines of each list.
const listed = 10

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, line := range lines[:min(len(lines), listed)] {
		fmt.Fprintf(b, "  %s\n", printable.Line(line))
	}
	if len(lines) > listed {
		fmt.Fprintf(b, "  and %d more, which the JSON has\n", len(lines)-listed)
	}
}
