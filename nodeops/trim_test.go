package nodeops

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const trimInChild = "HOLDFAST_TEST_TRIM"

// trimmed are the ranges, of 256 MiB.
var trimmed = regexp.MustCompile(`start=\w+, len=268435456\b`)

// An unmount, and the end of the process, wait for the range that is being trimmed.
func TestTrim_IsDoneInRangesOf256MiB(t *testing.T) {
	if dir := os.Getenv(trimInChild); dir != "" {
		check.OK(t, Trim(t.Context(), mountedAt(t, dir), gib, mib))
		return
	}
	requireRoot(t)
	if _, err := exec.LookPath("strace"); err != nil {
		hostfs.Skip(t, "strace", "strace is missing, which counts system calls")
	}
	for _, fstype := range []string{"ext4", "xfs"} {
		dir, trace := newFS(t, fstype, gib), filepath.Join(t.TempDir(), "trace")
		child := exec.CommandContext(t.Context(), "strace", "-f", "-e", "trace=ioctl", "-o", trace, os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(), trimInChild+"="+dir)
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", fstype, err, out)
		}
		const want = "start=0, len=268435456 start=0x10000000, len=268435456 start=0x20000000, len=268435456 start=0x30000000, len=268435456"
		check.Same(t, strings.Join(trimmed.FindAllString(read(t, trace), -1), " "), want)
	}
}
