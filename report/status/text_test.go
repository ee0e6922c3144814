package status

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// expects looks for words in a text.
func expects(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

// drawn is the text of a report, line by line.
func drawn(t *testing.T, r *Report, s Style) []string {
	t.Helper()
	var b strings.Builder
	check.OK(t, r.Text(&b, time.Now(), s))
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// large is a cluster of 1,000 nodes, of which some are not ready, and some pools are full.
func large() *Report {
	r := &Report{Cluster: &Cluster{Name: "holdfast", Phase: "Degraded", DesiredNodes: 1000, ReadyNodes: 998, Version: "v1.2.3", Message: strings.Repeat("node is gone; ", 500)}, Why: []string{"2 of 1000 nodes are not ready"}}
	for i := range 1000 {
		n := Node{Name: fmt.Sprintf("node-%d", i), Ready: i != 400 && i != 700, Version: "v1.2.3", Volumes: 12}
		p := Pool{Node: n.Name, Name: "fast", Engine: "Image", Capacity: 100 << 30, Used: int64(i%90) << 30, Promised: 95 << 30, Available: 5 << 30, Volumes: 12}
		if i == 555 {
			p.Message = "its file system is full to 99%"
		}
		r.Nodes, r.Pools = append(r.Nodes, n), append(r.Pools, p)
		if i%100 == 0 {
			r.Unwell = append(r.Unwell, facts.Unwell{Kind: "Volume", Name: fmt.Sprintf("pvc-%d", i), Node: n.Name, Phase: "Lost", Message: "the disk is gone"})
			r.Warnings = append(r.Warnings, facts.Event{LastTimestamp: time.Now(), InvolvedObject: facts.ObjectReference{Kind: "Pod", Namespace: "x", Name: "y"}, Reason: "Because", Message: "of it"})
		}
	}
	return r
}

func TestText_OfAThousandNodesIsOneScreenWithWhatNeedsAttention(t *testing.T) {
	for _, size := range []Style{{}, {Width: 80, Height: 24}, {Width: 120, Height: 50}, {Width: 40, Height: 10}} {
		lines := drawn(t, large(), size)
		most := size.Height - 1 // the cursor has the last one
		if size.Height == 0 {
			most = usualHeight
		}
		if len(lines) > most {
			t.Errorf("%+v: %d lines:\n%s", size, len(lines), strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			if size.Width > 0 && utf8.RuneCountInString(line) > size.Width {
				t.Errorf("%+v: %q is wider", size, line)
			}
		}
	}
	text := strings.Join(drawn(t, large(), Style{Width: 110, Height: 40}), "\n")
	expects(t, text,
		"volume/pvc-0 ", "node-400  no", "node-700  no", " more nodes, all ready", "all 1000", "node-555", "its file ", " more pools, all well", "Not well: 2 of 1000 nodes",
	)
	if all := drawn(t, large(), Style{Width: 80, Height: 24, All: true}); len(all) < 2000 || !strings.Contains(strings.Join(all, "\n"), "node-999  yes") || !strings.Contains(strings.Join(all, "\n"), "ENGINE") {
		t.Errorf("all of it is %d lines", len(all))
	}
}

func TestText_BarsShowWhatIsUsedPromisedAndFree(t *testing.T) {
	of := func(used, promised, available int64) *Pool {
		return &Pool{Capacity: 100, Used: used, Promised: promised, Available: available}
	}
	for _, test := range []struct {
		pool  *Pool
		ascii string
		colour
	}{
		{of(0, 0, 100), "..........", green},
		{of(1, 0, 99), "#.........", green},
		{of(20, 50, 50), "##===.....", green},
		{of(85, 90, 10), "#########.", yellow},
		{of(100, 100, 0), "##########", red},
		{of(50, 200, 0), "###=======", green}, // overcommit
		{of(60, 20, 30), "######....", green}, // others use the file system too
		{&Pool{}, "..........", green},
		// Numbers that no agent reports, but the schema accepts.
		{of(-1<<40, 0, 100), "..........", green},
		{of(-1, 200, -50), "==========", green},
		{of(0, -200, 50), "..........", green},
		{of(1, -2, -3), "#.........", green},
		{of(0, math.MaxInt64, math.MaxInt64), "=====.....", green},
		{of(math.MaxInt64, math.MaxInt64, math.MaxInt64), "#####.....", red},
		{&Pool{Capacity: -100, Used: -100, Promised: math.MinInt64, Available: math.MinInt64}, "..........", green},
	} {
		got := Style{}.bar(test.pool, 10)
		if got.text != test.ascii || got.colour != test.colour {
			t.Errorf("%+v: %+v", test.pool, got)
		}
		if wide := (Style{Unicode: true}).bar(test.pool, 10).text; wide != strings.NewReplacer("#", "█", "=", "▒", ".", "░").Replace(test.ascii) {
			t.Errorf("%+v: %s", test.pool, wide)
		}
	}
}

func TestText_ColoursChangeNothingElseAndOnlyWhereTheyAreAllowed(t *testing.T) {
	plain := strings.Join(drawn(t, large(), Style{Width: 100, Height: 40}), "\n")
	coloured := strings.Join(drawn(t, large(), Style{Width: 100, Height: 40, Colour: true}), "\n")
	if strings.Contains(plain, "\x1b") || !strings.Contains(coloured, "\x1b[31mLost") {
		t.Errorf("%s\n%s", plain, coloured)
	}
	if got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured, ""); got != plain {
		t.Errorf("without its colours it is\n%s\ninstead of\n%s", got, plain)
	}
}

func TestText_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	r := large()
	r.Unwell[0].Message, r.Cluster.Message, r.Why = "a\x1b[2Jb\nc\u009b2Jd", "x\x1b[2J\ry", []string{"\x1b[31m"}
	r.Cluster.OldestVersion = "v0\x1b[2J"
	r.Cluster.Version, r.Cluster.Upgrade = "v1\x1b[2J", "to-v2\u009b2J"
	for _, line := range drawn(t, r, Style{Width: 200, Height: 60}) {
		if strings.ContainsAny(line, "\x1b\r\u009b") {
			t.Errorf("%q", line)
		}
	}
}
