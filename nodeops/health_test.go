package nodeops

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// says fails unless the file system reports errors with all of the words.
func says(t testing.TB, dir string, words ...string) {
	t.Helper()
	h := FSHealth(t.Context(), mountedAt(t, dir))
	for _, word := range append(words, dir) {
		if !strings.Contains(h.Errors, word) {
			t.Errorf("%q is not in %+v", word, h)
		}
	}
}

func TestHealth_SoundFileSystemReportsNothing(t *testing.T) {
	for fstype, size := range fileSystems {
		for _, options := range [][]string{nil, {"ro"}} {
			dir, _ := mountLoop(t, remake(t, size, MkfsSpec{FSType: fstype}), fstype, options...)
			if h := FSHealth(t.Context(), mountedAt(t, dir)); h != (Health{}) {
				t.Errorf("%s %v: %+v", fstype, options, h)
			}
		}
	}
}

func TestHealth_Ext4ReportsItsErrors(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4"})
	dir, device := mountLoop(t, image, "ext4", "errors=continue")
	hostfs.MeetError(t, device)
	hostfs.MeetError(t, device)
	says(t, dir, "had errors: 2,", "first at 2", "trigger_test_error", "repaired before it is mounted")
	unmountAll(t, dir)
	check.Same(t, headOf(t, image).marked, true)
}

func TestHealth_FileSystemThatTurnedReadOnlyIsReported(t *testing.T) {
	dir, device := mountLoop(t, remake(t, 64*mib, MkfsSpec{FSType: "ext4"}), "ext4")
	hostfs.MeetError(t, device)
	check.Fails(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), unix.EROFS)
	says(t, dir, "had errors and can no longer be written: 1,")
	if m := mountedAt(t, dir); !m.Failed || !m.ReadOnly {
		t.Errorf("its mount is %+v", m)
	}
}

func TestHealth_XFSThatShutDownIsReported(t *testing.T) {
	dir, _ := mountLoop(t, remake(t, fileSystems["xfs"], MkfsSpec{FSType: "xfs"}), "xfs")
	command(t, "xfs_io", "-x", "-c", "shutdown", dir)
	says(t, dir, "has failed (", "log is replayed", "xfs_repair")
}

func TestHealth_BtrfsReportsTheErrorsOfItsDevice(t *testing.T) {
	image := remake(t, fileSystems["btrfs"], MkfsSpec{FSType: "btrfs"})
	dir, _ := mountLoop(t, image, "btrfs")
	marker := bytes.Repeat([]byte("by a test "), 7000)
	file := write(t, filepath.Join(dir, "file"), string(marker))
	unmountAll(t, dir)
	at := bytes.Index(check.Got(os.ReadFile(image))(t), marker[:4096])
	hostfs.Overwrite(t, image, int64(at), []byte("damage")...)
	check.OK(t, MountFS(t.Context(), attach(t, image, LoopOptions{Autoclear: true}).Path, dir, "btrfs", nil))
	check.Fails(t, check.ErrorOf(os.ReadFile(file)), unix.EIO) // the damage is met
	says(t, dir, "had errors of its device", "corruption_errs", "btrfs scrub start -B "+dir, "btrfs device stats -z "+dir)
}

func TestHealth_FileSystemSmallerThanItsDeviceIsReported(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		image := remake(t, size, MkfsSpec{FSType: fstype})
		dir, device := mountLoop(t, image, fstype)
		growImage(t, image, device, 2*size)
		if h := FSHealth(t.Context(), mountedAt(t, dir)); h.Errors != "" || !strings.Contains(h.Small, dir) {
			t.Errorf("it says %+v", h)
		}
		growing.Store(device, nil)
		defer growing.Delete(device)
		check.Same(t, FSHealth(t.Context(), mountedAt(t, dir)), (Health{})) // while it grows
		growing.Delete(device)
		requireGrowth(t, fstype)
		check.OK(t, GrowFS(t.Context(), device, dir))
		check.Same(t, FSHealth(t.Context(), mountedAt(t, dir)), (Health{})) // once it has grown
	})
}

func TestHealth_FileSystemThatHangsIsNotAwaited(t *testing.T) {
	m, hangs := &Mount{ID: "hangs", FSType: "xfs", Target: "/hangs"}, make(chan struct{})
	defer close(hangs)
	healthCalls.running.DoChan(m.ID, func() (any, error) { <-hangs; return Health{}, nil })
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

// following reads the kernel's log until the test ends.
func following(t *testing.T) {
	t.Helper()
	requireRoot(t)
	if f, err := os.Open("/dev/kmsg"); err != nil {
		hostfs.Skip(t, "kmsg", err.Error())
	} else {
		f.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- FollowIOErrors(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.Report(t, <-ended)
	})
}

// failReading causes I/O errors of a device until they are recorded: it is not known from when on the log is read.
func failReading(t *testing.T, image, device string) {
	t.Helper()
	wait.Until(t, "the record of an error", func() bool {
		hostfs.FailReading(t, image, device)
		return IOErrors(device) != ""
	})
}

func TestIOErrors_OfADeviceAreKnownUntilItIsAttachedAgain(t *testing.T) {
	hostfs.NotInGate(t, "expects the kernel's log within seconds")
	following(t)
	image := sparse(t, t.TempDir(), 16*mib)
	loop := attach(t, image, LoopOptions{Autoclear: true})
	other := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{Autoclear: true})
	check.Same(t, IOErrors(loop.Path), "")
	failReading(t, image, loop.Path)
	if said := IOErrors(loop.Path); !strings.Contains(said, filepath.Base(loop.Path)) || !strings.Contains(said, "at least ") {
		t.Errorf("it says %q", said)
	}
	check.Same(t, IOErrors(other.Path), "")
	ioErrors.mu.Lock()
	ioErrors.seen[filepath.Base(loop.Path)].attachment += " of before"
	ioErrors.mu.Unlock()
	check.Same(t, IOErrors(loop.Path), "")
}

func TestIOErrors_OfTheDeviceBelowAFileSystemAreItsHealth(t *testing.T) {
	following(t)
	for _, fstype := range []string{"ext4", "xfs"} {
		image := remake(t, fileSystems[fstype], MkfsSpec{FSType: fstype})
		dir, device := mountLoop(t, image, fstype)
		failReading(t, image, device)
		if h := FSHealth(t.Context(), mountedAt(t, dir)); !strings.Contains(h.Device, filepath.Base(device)) || h.Errors != "" {
			t.Errorf("%s: %+v", fstype, h)
		}
	}
}

func TestIOErrors_AreReadFromWhatTheKernelLogs(t *testing.T) {
	for line, device := range map[string]string{
		"3,1555,2203258087,-;I/O error, dev loop0, sector 12800 op 0x0:(READ) flags 0x800 phys_seg 16 prio class 2":      "loop0",
		"3,1555,2203258087,-;critical medium error, dev sda, sector 128 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2": "sda",
		"3,12,2,c;Buffer I/O error on dev dm-0, logical block 7, lost async page write":                                  "dm-0",
		"3,1555,2203258087,-;critical space allocation error, dev loop0, sector 1 op 0x1:(WRITE) flags 0x0":              "",
		"12,1555,2203258087,-;I/O error, dev loop0, sector 1 op 0x0:(READ)":                                              "", // written by a process
		"6,1555,2203258087,-;a program said: I/O error, dev loop0, sector 1":                                             "",
		"6,1554,2202946954,-;loop0: detected capacity change from 0 to 32768":                                            "",
		"3,1,2,-;I/O error, dev cciss!c0d0, sector 5 op 0x0:(READ)\n SUBSYSTEM=block\n DEVICE=b104:0":                    "cciss!c0d0",
	} {
		l := ioErrorLog{seen: map[string]*deviceErrors{}}
		l.note(line, time.Unix(1, 0))
		var got string
		for name := range l.seen {
			got = name
		}
		if got != device {
			t.Errorf("%q is of %q, want %q", line, got, device)
		}
	}
}
