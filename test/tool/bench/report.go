package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what was measured, in the order in which it was.
type report struct {
	throughput []throughputRow
	latency    []latencyRow
	sizes      []sizesRow
	nfs        []nfsRow
	elsewhere  string // what another machine printed
}

// throughputRow holds bytes per second, one of each round.
type throughputRow struct {
	target             target
	workload           string
	raw, plain, volume []float64
}

type latencyRow struct {
	target          target
	call            string
	scripts, driver []time.Duration
}

type sizesRow struct {
	target target
	call   string
	times  map[string][]time.Duration // of the small and the large volume
}

// machine describes where and how it was measured.
func machine(ctx context.Context, s scale) (string, error) {
	out, err := shell(ctx, `uname -r; fio --version`)
	if err != nil {
		return "", err
	}
	kernel, fio, _ := strings.Cut(out, "\n")
	return fmt.Sprintf("Linux %s, %d CPUs, %s with libaio and direct I/O at queue depth 32, %d rounds of one pass or %s over a file of %d MiB.",
		kernel, runtime.NumCPU(), fio, s.rounds, s.runtime, s.file/mib), nil
}

// calls describes how calls were timed.
func calls(s scale) string {
	return fmt.Sprintf("\nEach call %d times on volumes of 1 GiB. The small volume has 64 MiB, the large one %d GiB with %d MiB written.",
		s.calls, s.large/gib, s.written/mib)
}

func (r *report) print(out io.Writer, header string) error {
	_, err := io.WriteString(out, header+"\n"+r.throughputTable()+r.latencyTable()+r.sizesTable()+r.nfsTable()+r.elsewhere)
	return err
}

// A table of which nothing was measured is left out.

func (r *report) throughputTable() string {
	if len(r.throughput) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| throughput | raw pool | by hand | volume | by hand / raw | **volume / raw** |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, row := range r.throughput {
		fmt.Fprintf(&b, "| %s, %s | %s | %s | %s | %.2f | **%.2f** |\n", row.target, row.workload,
			speed(median(row.raw)), speed(median(row.plain)), speed(median(row.volume)), ratio(row.plain, row.raw), ratio(row.volume, row.raw))
	}
	return b.String()
}

func (r *report) latencyTable() string {
	if len(r.latency) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| call | median | p99 | shell median | shell p99 | **median / shell** |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, row := range r.latency {
		fmt.Fprintf(&b, "| %s, %s | %s | %s | %s | %s | **%.2f** |\n", row.target, row.call, ms(median(row.driver)), ms(p99(row.driver)),
			ms(median(row.scripts)), ms(p99(row.scripts)), float64(median(row.driver))/float64(median(row.scripts)))
	}
	return b.String()
}

func (r *report) sizesTable() string {
	if len(r.sizes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| copy | small volume | large volume | **large / small** |\n| --- | --- | --- | --- |\n")
	for _, row := range r.sizes {
		small, large := row.times["small"], row.times["large"]
		fmt.Fprintf(&b, "| %s, %s | %s | %s | **%.2f** |\n", row.target, row.call, ms(median(small)), ms(median(large)), ratio(large, small))
	}
	return b.String()
}

// ratio is the median of the ratios of each round, so that noise that lasts longer than a round cancels.
func ratio[T ~int64 | ~float64](of, to []T) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = float64(of[i]) / float64(to[i])
	}
	return median(ratios)
}

func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }
func p99[T cmp.Ordered](values []T) T    { return quantile(values, 0.99) }

// quantile is the smallest value that at least the share q of all do not exceed.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(q*float64(len(sorted)) + 0.999999)
	return sorted[max(1, rank)-1]
}

func speed(bytesPerSecond float64) string { return fmt.Sprintf("%.0f MiB/s", bytesPerSecond/mib) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
