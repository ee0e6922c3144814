package nodeops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// fileSystems are the supported types, with a size that is valid for each.
var fileSystems = map[string]int64{"ext4": 64 * mib, "xfs": 320 * mib, "btrfs": 256 * mib}

// requireRoot skips a test that mounts, attaches or changes owners without root.
func requireRoot(t testing.TB) {
	t.Helper()
	hostfs.RequireRoot(t)
}

// newFS makes a file system in a sparse file and returns its mount point. It is removed when the test ends.
func newFS(t testing.TB, fstype string, size int64, mkfsArgs ...string) (mountpoint string) {
	t.Helper()
	return mountImage(t, newImage(t, fstype, size, mkfsArgs...))
}

// newImage makes a file system in a sparse file. It does not use functions of this package, whose faults its tests
// would not detect then.
func newImage(t testing.TB, fstype string, size int64, mkfsArgs ...string) string {
	t.Helper()
	requireRoot(t)
	image := filepath.Join(t.TempDir(), fstype+".img")
	newSparse(t, image, size)
	args := []string{"-q"}
	switch fstype { // options for the sector size of AttachLoop
	case "ext4":
		args = append(args, "-b", "4096")
	case "xfs":
		args = append(args, "-s", "size=4096")
	}
	command(t, "mkfs."+fstype, append(append(args, mkfsArgs...), image)...)
	return image
}

// mountImage mounts an image in t.TempDir on an autoclear loop device.
func mountImage(t testing.TB, image string, options ...string) (mountpoint string) {
	t.Helper()
	requireRoot(t)
	mountpoint = newTarget(t)
	command(t, "mount", "-o", strings.Join(append([]string{"loop"}, options...), ","), image, mountpoint)
	return mountpoint
}

// newTarget is a directory from which everything is unmounted before its removal.
func newTarget(t testing.TB) (target string) {
	t.Helper()
	target = t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	return target
}

// eachFS runs a test on each type of file system.
func eachFS(t *testing.T, test func(t *testing.T, fstype string, size int64)) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) { test(t, fstype, size) })
	}
}

// unmountAll unmounts everything at target, even a frozen file system, whose loop device would remain otherwise.
func unmountAll(t testing.TB, target string) {
	t.Helper()
	if dir, err := os.Open(target); err == nil {
		_ = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
		dir.Close()
	}
	wait.Until(t, "the unmount of "+target, func() bool { // EBUSY is perhaps a process that is exiting
		var err error
		for err == nil {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		}
		return err == unix.EINVAL || err == unix.ENOENT
	})
}

// newSparse makes a file that is one hole.
func newSparse(t testing.TB, path string, size int64) {
	t.Helper()
	f := check.Got(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))(t)
	defer f.Close()
	check.OK(t, f.Truncate(size))
}

// command runs a command and returns its output.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	return check.Got(run(context.WithoutCancel(t.Context()), name, args...))(t)
}

// write creates a file with this content and returns its path.
func write(t testing.TB, path, content string) string {
	t.Helper()
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// read returns a file's content.
func read(t testing.TB, path string) string {
	t.Helper()
	b := check.Got(os.ReadFile(path))(t)
	return string(b)
}

// allocated returns how much space a file uses.
func allocated(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	check.OK(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// checksum is that of a file's content, including holes.
func checksum(t testing.TB, path string) string {
	t.Helper()
	f := check.Got(os.Open(path))(t)
	defer f.Close()
	sum := sha256.New()
	check.Got(io.Copy(sum, f))(t)
	return hex.EncodeToString(sum.Sum(nil))
}

// fill writes to a file until the file system is full.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	check.OK(t, err)
	defer f.Close()
	for _, size := range []int64{mib, 4 * kib} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	check.OK(t, f.Sync())
}

// holds fails unless a file has that content.
func holds(t testing.TB, path, want string) {
	t.Helper()
	if got := read(t, path); got != want {
		t.Errorf("%s holds %.200q, want %.200q", path, got, want)
	}
}

// absent fails if a path exists.
func absent(t testing.TB, path string) {
	t.Helper()
	check.Fails(t, check.ErrorOf(os.Lstat(path)), fs.ErrNotExist)
}

// unmounted fails if anything is mounted at a path.
func unmounted(t testing.TB, path string) {
	t.Helper()
	if m, err := MountAt(path); m != nil || err != nil {
		t.Errorf("at %s there is %+v, %v", path, m, err)
	}
}
