package hostfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// MeetError makes the kernel meet an error in the mounted ext4 on a device, and waits until it has counted it, which it
// does later.
func MeetError(t testing.TB, device string) {
	t.Helper()
	dir := filepath.Join("/sys/fs/ext4", filepath.Base(device))
	count := func() string {
		content := check.Got(os.ReadFile(filepath.Join(dir, "errors_count")))(t)
		return strings.TrimSpace(string(content))
	}
	before := count()
	check.OK(t, os.WriteFile(filepath.Join(dir, "trigger_fs_error"), []byte("by a test"), 0))
	wait.Until(t, "another error than the "+before+" of the ext4 on "+device, func() bool { return count() != before })
}

// FailReading makes the kernel meet an I/O error of a loop device: it reads the end of it where its image ends too early
// for that moment. The kernel does not log each error.
func FailReading(t testing.TB, image, device string) {
	t.Helper()
	is := check.Got(os.Stat(image))(t)
	f := check.Got(os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0))(t)
	defer f.Close()
	const block = 4096
	aligned := check.Got(unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { _ = unix.Munmap(aligned) }()
	const missing = 1 << 20
	check.OK(t, os.Truncate(image, is.Size()-missing))
	_, failure := f.ReadAt(aligned, is.Size()-missing)
	check.OK(t, os.Truncate(image, is.Size()))
	if failure == nil || errors.Is(failure, io.EOF) {
		t.Fatalf("reading what is not there: %v", failure)
	}
}
