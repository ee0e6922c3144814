package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

func TestBench_QuickRunMeasuresEverythingAndLeavesNothingBehind(t *testing.T) {
	hostfs.RequireRoot(t)
	binary, dir := build(t), t.TempDir()
	var out strings.Builder
	args, measured := []string{"-quick", "-binary", binary, "-scratch", dir}, targets
	if !hostfs.All() {
		measured = targets[:1]
		args = append(args, "-only", measured[0].String())
	}
	check.OK(t, run(t.Context(), args, &out, t.Output()))
	for _, target := range measured {
		var rows int
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "| "+target.String()+", ") {
				rows++
				if strings.Contains(line, "**0.00**") || strings.Contains(line, "NaN") || strings.Contains(line, "Inf") {
					t.Errorf("a ratio without meaning: %s", line)
				}
			}
		}
		if want := len(workloads) + len(life) + 2; rows != want {
			t.Errorf("%s: %d figures, want %d", target, rows, want)
		}
	}
	checkClean(t, dir)
}

func TestNFS_VolumesAreMeasuredWhereAClientExists(t *testing.T) {
	hostfs.RequireRoot(t)
	hostfs.Long(t)
	if has, err := hasNFS(); err != nil || !has && uml.Missing() != "" {
		hostfs.Skip(t, "uml", "neither this kernel nor another one can mount NFS")
	}
	dir := t.TempDir()
	var out strings.Builder
	check.OK(t, run(t.Context(), []string{"-quick", "-only", onlyNFS, "-scratch", dir}, &out, t.Output()))
	for _, w := range workloads {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(w.name) + ` \| [1-9]\d* MiB/s \| \d+ MiB/s \| \*\*\d+\.\d\d\*\* \|$`)
		if !row.MatchString(out.String()) {
			t.Errorf("no figures of %s in\n%s", w.name, out.String())
		}
	}
	checkClean(t, dir)
}

func TestBench_UnknownTargetIsRefused(t *testing.T) {
	err := run(t.Context(), []string{"-only", "image/zfs"}, t.Output(), t.Output())
	if err == nil || !strings.Contains(err.Error(), "image/zfs") || !strings.Contains(err.Error(), "directory/btrfs") {
		t.Errorf("got %v; want an error that names what was given and what is allowed", err)
	}
}

func build(t *testing.T) string {
	t.Helper()
	return check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
}

// checkClean finds files, mounts and loop devices that a run left below its scratch directory.
func checkClean(t *testing.T, dir string) {
	t.Helper()
	left := check.Got(os.ReadDir(dir))(t)
	mounts := check.Got(os.ReadFile("/proc/self/mounts"))(t)
	loops := check.Got(shell(t.Context(), "losetup --noheadings --list --output BACK-FILE"))(t)
	if len(left) > 0 || strings.Contains(string(mounts), dir) || strings.Contains(loops, dir) {
		t.Errorf("left behind: files %v, or among mounts:\n%s\nor loop devices of:\n%s", left, mounts, loops)
	}
}
