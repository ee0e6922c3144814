package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/measure"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

// quick returns what a small measurement prints, and finds files, mounts and loop devices that it left behind.
func quick(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	var out strings.Builder
	check.OK(t, run(t.Context(), append([]string{"-quick", "-scratch", dir}, args...), &out, t.Output()))
	left := check.Got(os.ReadDir(dir))(t)
	mounts := check.Got(os.ReadFile("/proc/self/mounts"))(t)
	loops := check.Got(shell(t.Context(), "losetup --noheadings --list --output BACK-FILE"))(t)
	if len(left) > 0 || strings.Contains(string(mounts), dir) || strings.Contains(loops, dir) {
		t.Errorf("left behind: files %v, or among mounts:\n%s\nor loop devices of:\n%s", left, mounts, loops)
	}
	return out.String()
}

func TestBench_QuickRunMeasuresEverythingAndLeavesNothingBehind(t *testing.T) {
	hostfs.RequireRoot(t)
	args, measured := []string{"-binary", check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)}, targets
	if !hostfs.All() {
		measured = targets[:1]
		args = append(args, "-only", measured[0].String())
	}
	out := quick(t, args...)
	for _, target := range measured {
		rows := regexp.MustCompile(`(?m)^\| `+target.String()+`, .*\*\*\d+\.\d\d\*\* \|$`).FindAllString(out, -1)
		if want := len(measure.Loads) + 8 + 2; len(rows) != want || strings.Contains(strings.Join(rows, "\n"), "**0.00**") {
			t.Errorf("%s: %d figures, want %d with a ratio:\n%s", target, len(rows), want, out)
		}
	}
}

func TestNFS_VolumesAreMeasuredWhereAClientExists(t *testing.T) {
	hostfs.RequireRoot(t)
	hostfs.Long(t)
	if !hasNFS() && uml.Missing() != "" {
		hostfs.Skip(t, "uml", "neither this kernel nor another one can mount NFS")
	}
	out := quick(t, "-only", onlyNFS)
	for _, l := range measure.Loads {
		if !regexp.MustCompile(`(?m)^\| ` + l.Name + ` \| [1-9]\d* MiB/s \| \d+ MiB/s \| \d+ MiB/s \| \d+\.\d\d \| \*\*\d+\.\d\d\*\* \|$`).MatchString(out) {
			t.Errorf("no figures of %s in\n%s", l.Name, out)
		}
	}
}

func TestCompare_RunsOfAClassAreCombinedAndComparedWithTheOther(t *testing.T) {
	plain := bench.Measurement{Measure: bench.PlainPod, AtOnce: 1, Values: []bench.Seconds{1}}
	bound := func(v ...bench.Seconds) bench.Measurement {
		return bench.Measurement{Measure: bench.ClaimBound, AtOnce: 20, Values: v}
	}
	result := func(class string, m ...bench.Measurement) string {
		content := check.Got(json.Marshal(bench.Result{Complete: true, Class: bench.Class{Name: class}, Measurements: m}))(t)
		name := filepath.Join(t.TempDir(), "result.json")
		check.OK(t, os.WriteFile(name, content, 0o600))
		return name
	}
	var out strings.Builder
	check.OK(t, run(t.Context(), []string{
		"-compare", result("a", plain, bound(4, 5)), result("b", plain, bound(2, 3)), result("a", plain, bound(1)), result("b", plain),
	}, &out, t.Output()))
	const want = `
| AT ONCE | MEASURE | SAMPLES | a P50 | b P50 | RATIO | a P99 | b P99 | RATIO |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 1 | plainPodRunning | 2, 2 | 1.00 s | 1.00 s | **1.00** | 1.00 s | 1.00 s | **1.00** |
| 20 | claimBound | 3, 2 | 4.00 s | 2.00 s | **2.00** | 5.00 s | 3.00 s | **1.67** |
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestBench_ImpossibleRunIsRefused(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-only", "image/zfs"}, "-only image/zfs: it must be nfs or one of [image/xfs image/ext4 image/btrfs directory/btrfs]"},
		{[]string{"-compare"}, "0 files of 0 classes: give results of two classes"},
		{[]string{"-compare", "/dev/null"}, "/dev/null: it must be what holdfast bench --output json writes"},
	} {
		if err := run(t.Context(), test.args, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.args, err, test.want)
		}
	}
}
