package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/bench"
)

// table is one of Markdown. It is left out if it has no rows.
type table struct {
	text string // above it
	head string
	rows []string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, strings.Join(cells, " | ")) }

func (t *table) String() string {
	if len(t.rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n| %s |\n|%s\n", t.text, t.head, strings.Repeat(" --- |", strings.Count(t.head, " | ")+1))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", row)
	}
	return b.String()
}

// report is what was measured.
type report struct{ speeds, calls, copies, nfs table }

func newReport(s scale) report {
	return report{
		speeds: table{head: "throughput | raw pool | by hand | volume | by hand / raw | **volume / raw**"},
		calls: table{
			text: fmt.Sprintf("\nEach call %d times on volumes of 1 GiB.\n", s.calls),
			head: "call | median | p99 | shell median | shell p99 | **median / shell**",
		},
		copies: table{
			text: fmt.Sprintf("\nThe small volume has 64 MiB, the large one %d GiB with %d MiB written.\n", s.large/gib, s.written/mib),
			head: "copy | small volume | large volume | **large / small**",
		},
		nfs: table{
			text: "\nClient and server on one kernel, over a file of at most 512 MiB.\n",
			head: "over NFS | server's own directory | NFS | kernel's nfsd | nfsd / own | **NFS / own**",
		},
	}
}

func (r *report) String() string {
	return r.speeds.String() + r.calls.String() + r.copies.String() + r.nfs.String()
}

// speed is the median of bytes per second.
func speed(all []float64) string { return fmt.Sprintf("%.0f MiB/s", bench.Percentile(all, 50)/mib) }

// took is what at least p of 100 times do not exceed.
func took[T ~float64](all []T, p int) string { return bench.Seconds(bench.Percentile(all, p)).String() }

func bold(ratio float64) string { return fmt.Sprintf("**%.2f**", ratio) }
