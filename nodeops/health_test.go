package nodeops

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// mountAt returns the mount at a directory.
func mountAt(t testing.TB, dir string) *Mount {
	t.Helper()
	m, err := MountAt(dir)
	if err != nil || m == nil {
		t.Fatalf("nothing is mounted at %s: %v", dir, err)
	}
	return m
}

// says fails unless the file system reports errors with all of the words.
func says(t testing.TB, dir string, words ...string) {
	t.Helper()
	h := FSHealth(t.Context(), mountAt(t, dir))
	for _, word := range append(words, dir) {
		if !strings.Contains(h.Errors, word) {
			t.Errorf("%q is not in %+v", word, h)
		}
	}
}

func TestHealth_SoundFileSystemReportsNothing(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		for _, options := range [][]string{nil, {"ro"}} {
			dir, _ := mountLoop(t, remake(t, size, MkfsSpec{FSType: fstype}), fstype, options...)
			if h := FSHealth(t.Context(), mountAt(t, dir)); h != (Health{}) {
				t.Errorf("%s %v: %+v", fstype, options, h)
			}
		}
	}
}

func TestHealth_Ext4ReportsItsErrors(t *testing.T) {
	requireRoot(t)
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir, device := mountLoop(t, image, "ext4", "errors=continue")
	hostfs.MeetError(t, device)
	hostfs.MeetError(t, device)
	says(t, dir, "had errors: 2,", "first at 2", "trigger_test_error", "repaired before it is mounted")
	unmountAll(t, dir)
	if !headOf(t, image).marked {
		t.Error("and is not marked")
	}
}

func TestHealth_FileSystemThatTurnedReadOnlyIsReported(t *testing.T) {
	requireRoot(t)
	dir, device := mountLoop(t, remake(t, 64*mib, MkfsSpec{FSType: "ext4"}), "ext4")
	hostfs.MeetError(t, device)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Fatalf("it can be written: %v", err)
	}
	says(t, dir, "had errors and can no longer be written: 1,")
	if m := mountAt(t, dir); !m.Failed || !m.ReadOnly {
		t.Errorf("its mount is %+v", m)
	}
}

func TestHealth_XFSThatShutDownIsReported(t *testing.T) {
	requireRoot(t)
	dir, _ := mountLoop(t, remake(t, fileSystems["xfs"], MkfsSpec{FSType: "xfs"}), "xfs")
	command(t, "xfs_io", "-x", "-c", "shutdown", dir)
	says(t, dir, "has failed (", "log is replayed", "xfs_repair")
}

func TestHealth_BtrfsReportsTheErrorsOfItsDevice(t *testing.T) {
	requireRoot(t)
	image := remake(t, fileSystems["btrfs"], MkfsSpec{FSType: "btrfs"})
	dir, device := mountLoop(t, image, "btrfs")
	marker := bytes.Repeat([]byte("by a test "), 7000)
	file := write(t, filepath.Join(dir, "file"), string(marker))
	unmountAll(t, dir)
	content, err := os.ReadFile(image)
	check.OK(t, err)
	at := bytes.Index(content, marker[:4096])
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil || at < 0 {
		t.Fatalf("the file is at %d (%v)", at, err)
	}
	_, err = f.WriteAt([]byte("damage"), int64(at))
	check.OK(t, errors.Join(err, f.Close()))
	check.OK(t, MountFS(t.Context(), attach(t, image, LoopOptions{Autoclear: true}).Path, dir, "btrfs", nil))
	if _, err := os.ReadFile(file); !errors.Is(err, unix.EIO) {
		t.Fatalf("the damage on %s was not met: %v", device, err)
	}
	says(t, dir, "had errors of its device", "corruption_errs", "btrfs scrub start -B "+dir, "btrfs device stats -z "+dir)
}

func TestHealth_FileSystemSmallerThanItsDeviceIsReported(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			image := remake(t, size, MkfsSpec{FSType: fstype})
			dir, device := mountLoop(t, image, fstype)
			growImage(t, image, device, 2*size)
			if h := FSHealth(t.Context(), mountAt(t, dir)); h.Errors != "" || !strings.Contains(h.Small, dir) {
				t.Errorf("it says %+v", h)
			}
			growing.Store(device, nil)
			defer growing.Delete(device)
			if h := FSHealth(t.Context(), mountAt(t, dir)); h != (Health{}) {
				t.Errorf("while it grows: %+v", h)
			}
			growing.Delete(device)
			requireGrowth(t, fstype)
			check.OK(t, GrowFS(t.Context(), device, dir))
			if h := FSHealth(t.Context(), mountAt(t, dir)); h != (Health{}) {
				t.Errorf("once it has grown: %+v", h)
			}
		})
	}
}

func TestHealth_FileSystemThatHangsIsNotAwaited(t *testing.T) {
	m, hangs := &Mount{ID: "hangs", FSType: "xfs", Target: "/hangs"}, make(chan struct{})
	defer close(hangs)
	healthCalls.DoChan(m.ID, func() (any, error) { <-hangs; return Health{}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h := FSHealth(ctx, m); !strings.Contains(h.Errors, "/hangs does not answer") {
		t.Errorf("it says %+v", h)
	}
}

func TestHealth_MountReportsWhetherItsFileSystemFailed(t *testing.T) {
	for options, want := range map[string]Mount{
		"rw - ext4 /dev/loop1 rw":                                {},
		"ro - ext4 /dev/loop1 ro":                                {ReadOnly: true},
		"ro - ext4 /dev/loop1 rw":                                {ReadOnly: true},
		"rw - ext4 /dev/loop1 ro":                                {ReadOnly: true, Failed: true},
		"rw - ext4 /dev/loop1 rw,errors=remount-ro,emergency_ro": {ReadOnly: true, Failed: true},
		"ro - ext4 /dev/loop1 rw,shutdown":                       {ReadOnly: true, Failed: true},
	} {
		mounts := parseMounts("36 35 7:1 / /mnt " + options + "\n")
		if len(mounts) != 1 || mounts[0].ReadOnly != want.ReadOnly || mounts[0].Failed != want.Failed {
			t.Errorf("%s: %+v", options, mounts)
		}
	}
}
