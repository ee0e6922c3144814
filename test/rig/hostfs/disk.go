package hostfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Disk returns the path of a new, empty block device of the given size, which ends with the test and takes every mount
// of it along.
func Disk(t testing.TB, size int64) (device string) {
	t.Helper()
	RequireRoot(t)
	disk := filepath.Join(scratchOf(t), "disk")
	check.OK(t, os.WriteFile(disk, nil, 0o600))
	check.OK(t, os.Truncate(disk, size))
	return Attach(t, disk)
}

// Detach takes a disk away before the test ends, as if it were pulled out, and returns the file behind it.
func Detach(t testing.TB, device string) (file string) {
	t.Helper()
	b := check.Got(os.ReadFile(backing(device)))(t)
	detach(t, device, string(b))
	return strings.TrimSpace(string(b))
}

// DetachAll ends what a failed test may have left attached.
func DetachAll(t testing.TB, devices []string) {
	t.Helper()
	for _, device := range devices {
		if b, err := os.ReadFile(backing(device)); err == nil {
			detach(t, device, string(b))
		}
	}
}

// Attach puts the file of a disk back, perhaps under another name. It ends with the test.
func Attach(t testing.TB, file string) (device string) {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	b, err := os.ReadFile(backing(device))
	check.OK(t, err)
	t.Cleanup(func() { detach(t, device, string(b)) })
	return device
}

func backing(device string) string {
	return filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file")
}

// detach unmounts a device, and waits until the kernel has released its file. One that belongs to another file by now,
// perhaps to another test's, is left alone.
func detach(t testing.TB, device, file string) {
	t.Helper()
	attached := func() bool {
		b, err := os.ReadFile(backing(device))
		return err == nil && string(b) == file
	}
	if !attached() {
		return
	}
	for unmounted := true; unmounted; unmounted = exec.Command("umount", device).Run() == nil {
		continue // with the next mount of it
	}
	if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
		t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		return
	}
	wait.Until(t, "the end of "+device+" on "+file, func() bool { return !attached() })
}

// Overwrite writes bytes into a device behind the back of its users.
func Overwrite(t testing.TB, device string, at int64, content ...byte) {
	t.Helper()
	f := check.Got(os.OpenFile(device, os.O_WRONLY|unix.O_SYNC, 0))(t)
	defer f.Close()
	check.Got(f.WriteAt(content, at))(t)
}

// Content sums up all blocks of a disk that are not zero.
func Content(t testing.TB, device string) string {
	t.Helper()
	run(t, "blockdev", "--flushbufs", device)
	file := strings.TrimSpace(string(check.Got(os.ReadFile(backing(device)))(t)))
	f := check.Got(os.Open(file))(t)
	defer f.Close()
	sum := sha256.New()
	const block = 4096
	for at := int64(0); ; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return hex.EncodeToString(sum.Sum(nil))
		}
		check.OK(t, err)
		part := make([]byte, 1<<20)
		at = data / block * block
		n, err := f.ReadAt(part, at)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for b := range slices.Chunk(part[:n], block) {
			if !bytes.Equal(b, make([]byte, len(b))) {
				fmt.Fprintln(sum, at)
				sum.Write(b)
			}
			at += int64(len(b))
		}
	}
}
