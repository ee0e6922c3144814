package top

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// sampled is what nodes counted some seconds after noon.
func sampled(seconds int, counted map[Key]Counters, nodes ...string) *Sample {
	s := &Sample{At: map[string]time.Time{}, Counted: counted}
	for _, n := range nodes {
		s.At[n] = noon.Add(time.Duration(seconds) * time.Second)
	}
	return s
}

func counted(n float64) Counters { return Counters{n, 4096 * n, 2 * n, 8192 * n} }

func volume(name, node, pool string) Volume {
	return Volume{Name: name, ClaimRef: v1beta1.ReferenceTo("shop/" + name), PodRefs: []v1beta1.NamespacedReference{{Namespace: "shop", Name: "web"}}, Node: node, Pool: pool}
}

// names are those of the rows, and what is known of each: its writes per second, or none.
func names(r *Report) string {
	var all []string
	for _, row := range r.Rows {
		all = append(all, row.Name+"="+strings.Join(r.cells(&row, false)[len(r.cells(&row, false))-2:len(r.cells(&row, false))-1], ""))
	}
	return strings.Join(all, " ")
}

func TestTop_ComparesTwoSamplesAndSortsByBytes(t *testing.T) {
	before := sampled(0, map[Key]Counters{{"a", "slow"}: counted(100), {"a", "fast"}: counted(5), {"b", "again"}: counted(900)}, "a", "b")
	after := sampled(10, map[Key]Counters{
		{"a", "slow"}: counted(110), {"a", "fast"}: counted(505), {"b", "again"}: counted(40), {"b", "new"}: counted(20),
		{"b", "slow"}: counted(1e6), // another node has no say in it
	}, "a", "b")
	all := []Volume{volume("slow", "a", "p"), volume("fast", "a", "p"), volume("again", "b", "p"), volume("new", "b", "p"), volume("unused", "b", "p")}
	r := Compare(before, after, all, ByVolume)
	if got := names(r); got != "fast=100 again=8 new=4 slow=2" || r.Idle != 1 || r.Seconds != 10 {
		t.Errorf("%s, %d idle in %f s", got, r.Idle, r.Seconds)
	}
	if got := *r.Rows[0].Rates; got != (Rates{ReadBytes: 4096 * 50, WrittenBytes: 8192 * 50, Reads: 50, Writes: 100}) {
		t.Errorf("%+v", got)
	}
	if r := Compare(before, after, all, ByNode); len(r.Rows) != 2 || r.Rows[0].Name != "a" || r.Rows[0].Rates.Reads != 51 || r.Rows[0].Volumes != 2 || r.Rows[1].Rates.Reads != 6 {
		t.Errorf("%+v", r.Rows)
	}
}

func TestTop_WhatTheKernelDoesNotCountIsNotEstimated(t *testing.T) {
	files := volume("files", "a", "dirs")
	files.Uncounted = Uncounted
	before, after := sampled(0, nil, "a"), sampled(2, map[Key]Counters{{"a", "image"}: counted(10)}, "a")
	for by, want := range map[By]string{ByVolume: "image files", ByPool: "p dirs"} {
		r := Compare(before, after, []Volume{files, volume("image", "a", "p")}, by)
		var out strings.Builder
		check.OK(t, r.Text(&out, 0, false))
		if len(r.Rows) != 2 || r.Rows[0].Name+" "+r.Rows[1].Name != want || r.Rows[1].Rates != nil || r.Rows[1].Why != Uncounted || r.Rows[0].Why != "" {
			t.Errorf("%s: %+v", by, r.Rows)
		}
		if !strings.Contains(out.String(), " -  ") || !strings.Contains(out.String(), "\n-: the kernel counts for block devices") {
			t.Errorf("%s:\n%s", by, &out)
		}
	}
	if r := Compare(before, after, []Volume{files, volume("image", "a", "p")}, ByNode); len(r.Rows) != 1 || r.Rows[0].Rates == nil || r.Rows[0].Volumes != 1 || r.Rows[0].Why != "" {
		t.Errorf("%+v", r.Rows)
	}
}

func TestTop_NodeThatDoesNotAnswerTwiceIsNamedAndItsVolumesAreNotCalledUnused(t *testing.T) {
	before, after := sampled(0, nil, "a", "d"), sampled(2, map[Key]Counters{{"a", "v"}: counted(10), {"b", "w"}: counted(1e6)}, "a", "b", "c")
	before.Silent, after.Silent = []Silent{{"b", "pod holdfast-node-2 did not answer in 5s"}}, []Silent{{"d", "no pod of it runs"}}
	all := []Volume{volume("v", "a", "p"), volume("w", "b", "p"), volume("x", "c", "p"), volume("y", "a", "p"), volume("z", "gone", "p"), volume("u", "d", "p")}
	r := Compare(before, after, all, ByVolume)
	if r.Idle != 1 || names(r) != "v=10" {
		t.Errorf("%d idle, %+v", r.Idle, r.Rows)
	}
	var out strings.Builder
	if check.OK(t, r.Text(&out, 0, false)); !strings.Contains(out.String(), "no answer from d: no pod of it runs\n") {
		t.Errorf("it says\n%s", &out)
	}
	want := []Silent{{"b", "pod holdfast-node-2 did not answer in 5s"}, {"c", "it was not in the first sample"}, {"d", "no pod of it runs"}}
	if !slices.Equal(r.Silent, want) || len(after.Silent) != 1 {
		t.Errorf("%+v", r.Silent)
	}
}

func TestTop_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	const erases = "\x1b[2J\u009b2J"
	after := sampled(2, map[Key]Counters{{"a", "v"}: counted(10)}, "a")
	after.Silent = []Silent{{"b", "no pod" + erases}}
	odd := volume("v", "a", "pool"+erases)
	odd.PodRefs = []v1beta1.NamespacedReference{{Namespace: "shop", Name: "web" + erases}}
	var out strings.Builder
	check.OK(t, Compare(sampled(0, nil, "a"), after, []Volume{odd}, ByVolume).Text(&out, 0, false))
	for _, want := range []string{"no pod [2J 2J\n", "web [2J 2J  ", "pool [2J 2J  "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%q", want, &out)
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b") {
		t.Errorf("%q", &out)
	}
}

func TestTop_RowsThatDoNotFitAreCounted(t *testing.T) {
	now := map[Key]Counters{}
	var all []Volume
	for name := range strings.SplitSeq("abcdefgh", "") {
		all, now[Key{"n", name}] = append(all, volume(name, "n", "p")), counted(float64(name[0]))
	}
	var out strings.Builder
	check.OK(t, Compare(sampled(0, nil, "n"), sampled(1, now, "n"), all, ByVolume).Text(&out, 3, false))
	if got := out.String(); strings.Count(got, "\n") != 5 || !strings.Contains(got, "5 more, which read and write less") || !strings.Contains(got, "shop/h") || strings.Contains(got, "shop/a") {
		t.Error(got)
	}
}

func TestTop_ReadsTheCountersOfHoldfastAndNothingElse(t *testing.T) {
	const page = `# TYPE holdfast_build_info gauge
holdfast_build_info{version="v1"} 1
# TYPE holdfast_volume_reads_total counter
holdfast_volume_reads_total{pool="p",volume="a"} 3
# TYPE holdfast_volume_written_bytes_total counter
holdfast_volume_written_bytes_total{pool="p",volume="a"} 1.2345678912e+10
holdfast_volume_written_bytes_total{pool="p",volume="b"} 5
# TYPE go_goroutines gauge
go_goroutines 12
`
	got, err := parse(strings.NewReader(page))
	if err != nil || len(got) != 2 || got["a"] != (Counters{Reads: 3, WrittenBytes: 12345678912}) || got["b"].WrittenBytes != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range []string{"# TYPE go_goroutines gauge\ngo_goroutines 12\n", "<html>\n", ""} {
		if got, err := parse(strings.NewReader(other)); err == nil {
			t.Errorf("%q is read as %+v", other, got)
		}
	}
}

func TestTop_NumbersAreShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 1: "1", 999: "999", 1000: "1.0Ki", 1536: "1.5Ki", 10 << 10: "10Ki", 999 << 20: "999Mi", 3 << 30: "3.0Gi", 5 << 40: "5.0Ti", 1 << 55: "32768Ti"} {
		if got := bytes(n); got != want {
			t.Errorf("%f: %s instead of %s", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.2: "<1", 0.5: "0", 1.6: "2", 12345.4: "12345"} {
		if got := operations(n); got != want {
			t.Errorf("%f: %s instead of %s", n, got, want)
		}
	}
}
