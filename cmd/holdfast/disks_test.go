package main

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend/local/disk"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestDisks_ShowWhatWouldBeTaken(t *testing.T) {
	hostfs.RequireRoot(t)
	empty, dir := hostfs.Disk(t, 320<<20), t.TempDir()
	out := check.Got(call(t, "disks", "--state-dir", dir, "--paths", empty))(t)
	if line := strings.Join(strings.Fields(out), " "); !strings.Contains(line, empty+" 320Mi would be formatted") {
		t.Errorf("it prints %s", out)
	}
	if out := check.Got(call(t, "disks", "--state-dir", dir, "--paths", empty, "-o", "json"))(t); !strings.Contains(out, `"state": "Take"`) {
		t.Errorf("it prints %s", out)
	}
}

func TestDisks_SayWhyOneIsNotTouched(t *testing.T) {
	var out strings.Builder
	check.OK(t, writeDisks(&out, []disk.Sight{
		{Path: "/dev/sda", Size: 1 << 40, Model: "M\x1b[2J", State: disk.Refused, Why: "it has partitions: sda1", ID: "S1"},
		{Path: "/dev/sdb", Size: 1 << 40, State: disk.OfPool, Why: "fast"},
	}, true))
	expects(t, out.String(), "/dev/sda  1Ti", `is not touched: it has partitions: sda1  S1`, "is that of pool fast")
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a disk's model reaches the terminal as it is")
	}
}
