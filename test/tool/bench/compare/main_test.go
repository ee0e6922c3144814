package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// result writes what a run of a class would have written.
func result(t *testing.T, class string, complete bool, m ...bench.Measurement) string {
	t.Helper()
	content := check.Got(json.Marshal(bench.Result{Complete: complete, Class: bench.Class{Name: class}, Measurements: m}))(t)
	name := filepath.Join(t.TempDir(), "result.json")
	check.OK(t, os.WriteFile(name, content, 0o600))
	return name
}

func TestCompare_RunsOfAClassAreCombinedAndComparedWithTheOther(t *testing.T) {
	plain := bench.Measurement{Measure: bench.PlainPod, AtOnce: 1, Values: []bench.Seconds{1}}
	bound := func(v ...bench.Seconds) bench.Measurement {
		return bench.Measurement{Measure: bench.ClaimBound, AtOnce: 20, Values: v}
	}
	files := []string{
		result(t, "a", true, plain, bound(4, 5)), result(t, "b", true, plain, bound(2, 3)),
		result(t, "a", true, plain, bound(1)), result(t, "b", true, plain),
	}
	var out strings.Builder
	check.OK(t, compare(files, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	if got := strings.Join(strings.Fields(lines[2]), " "); got != "20 claimBound 3, 2 4.00 s 2.00 s 2.00 5.00 s 3.00 s 1.67" {
		t.Error(got)
	}
}
