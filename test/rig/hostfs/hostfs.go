// Package hostfs makes real file systems for tests: a sparse file, mkfs, a mount, and their removal. It finds free
// ports. It also decides which tests run: those that lack a prerequisite, or take long, are skipped unless the
// environment requires them.
package hostfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Kind is a file system with the options it is made and mounted with.
type Kind struct {
	Name  string
	mkfs  []string
	mount string
}

// The kinds of pools that Holdfast knows.
var (
	XFS       = Kind{Name: "xfs", mkfs: []string{"mkfs.xfs", "-q", "-f", "-m", "reflink=1"}}
	Ext4      = Kind{Name: "ext4", mkfs: []string{"mkfs.ext4", "-q", "-F"}}
	Btrfs     = Kind{Name: "btrfs", mkfs: []string{"mkfs.btrfs", "-q", "-f"}}
	XFSQuota  = Kind{Name: "xfs-prjquota", mkfs: XFS.mkfs, mount: "prjquota"}
	Ext4Quota = Kind{Name: "ext4-prjquota", mkfs: []string{"mkfs.ext4", "-q", "-F", "-O", "project,quota", "-E", "quotatype=prjquota"}, mount: "prjquota"}
)

// RequireRoot skips a test that needs root, or fails it where the environment says that nothing may be skipped.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root", "needs root: it makes and mounts file systems")
	}
}

// Skip skips a test, or fails it where HOLDFAST_REQUIRE lists what is missing.
func Skip(t testing.TB, missing, reason string) {
	t.Helper()
	for required := range strings.SplitSeq(os.Getenv("HOLDFAST_REQUIRE"), ",") {
		if required == missing {
			t.Fatalf("HOLDFAST_REQUIRE names %s, but: %s", missing, reason)
		}
	}
	t.Skip(reason)
}

// All says whether what takes long is to be tested too.
func All() bool { return os.Getenv("HOLDFAST_TESTS") == "all" || Figures() }

// Figures says whether times, memory and requests are to be measured and compared, as in the lanes that are never red.
func Figures() bool { return os.Getenv("HOLDFAST_TESTS") == "figures" }

// OnlyFigures skips a test that does nothing else.
func OnlyFigures(t testing.TB) {
	t.Helper()
	if !Figures() {
		t.Skip("measures; HOLDFAST_TESTS=figures runs it, as make lane-figures and make lane-figures-cluster do")
	}
}

// Long skips a test that takes longer than make test shall.
func Long(t testing.TB) {
	t.Helper()
	NotInGate(t, "takes long")
}

// NotInGate skips a test whose outcome can depend on more than the code, such as the speed of the machine, for the given
// reason: make test must fail only where something is wrong.
func NotInGate(t testing.TB, reason string) {
	t.Helper()
	if !All() {
		t.Skip(reason + "; HOLDFAST_TESTS=all runs it, as make test-all and make e2e do")
	}
}

// New returns the mount point of a new file system of the given size, which ends with the test.
func New(t testing.TB, k Kind, size int64) string {
	t.Helper()
	RequireRoot(t)
	dir := scratchOf(t)
	disk, target := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	f := check.Got(os.Create(disk))(t)
	defer f.Close()
	check.OK(t, f.Truncate(size))
	check.OK(t, os.Mkdir(target, 0o755))
	run(t, append(k.mkfs, disk)...)
	options := "loop"
	if k.mount != "" {
		options += "," + k.mount
	}
	if out, err := exec.Command("mount", "--rw", "-o", options, disk, target).CombinedOutput(); err != nil {
		if k.mount == "prjquota" {
			Skip(t, "prjquota", fmt.Sprintf("this kernel cannot mount %s with project quotas: %s", k.Name, out))
		}
		t.Fatalf("mount %s: %v: %s", k.Name, err, out)
	}
	t.Cleanup(func() { unmountAll(t, dir) })
	return target
}

// Cut returns the mount point of what a power cut at this moment would leave of the file system that New made at
// target: what is on its disk, without what is only in memory.
func Cut(t testing.TB, k Kind, target string) string {
	t.Helper()
	dir := scratchOf(t)
	disk, left := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	run(t, "cp", "--sparse=always", filepath.Join(filepath.Dir(target), "disk"), disk)
	check.OK(t, os.Mkdir(left, 0o755))
	options := "loop"
	if strings.HasPrefix(k.Name, "xfs") {
		options += ",nouuid" // that of the one that goes on
	}
	t.Cleanup(func() { unmountAll(t, dir) })
	run(t, "mount", "--rw", "-o", options, disk, left)
	return left
}

// unmountAll ends the mounts below dir, the last first, so that a failed test leaves none behind.
func unmountAll(t testing.TB, dir string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	check.Report(t, err)
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1]+"/", dir+"/") {
			if err := unmount(fields[1]); err != nil {
				t.Error(err)
				_ = unix.Unmount(fields[1], unix.MNT_DETACH) // the test has failed already
			}
		}
	}
}

// unmount waits for processes that look at a loop device of an image there: the image is in use until they have closed
// it.
func unmount(target string) error {
	const patience, again = 30 * time.Second, 50 * time.Millisecond
	tick := time.NewTicker(again)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		err := unix.Unmount(target, 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("umount %s: %w", target, err)
		}
	}
}

func run(t testing.TB, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}
