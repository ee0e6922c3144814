package nodeops

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

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
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for IOErrors(device) == "" {
		hostfs.FailReading(t, image, device)
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatal("the error is not seen")
		}
	}
}

func TestIOErrors_OfADeviceAreKnownUntilItIsAttachedAgain(t *testing.T) {
	hostfs.NotInGate(t, "expects the kernel's log within seconds")
	following(t)
	image := sparse(t, t.TempDir(), 16*mib)
	loop := attach(t, image, LoopOptions{Autoclear: true})
	other := attach(t, sparse(t, t.TempDir(), 16*mib), LoopOptions{Autoclear: true})
	if said := IOErrors(loop.Path); said != "" {
		t.Errorf("a good device has met %q", said)
	}
	failReading(t, image, loop.Path)
	if said := IOErrors(loop.Path); !strings.Contains(said, filepath.Base(loop.Path)) || !strings.Contains(said, "at least ") {
		t.Errorf("it says %q", said)
	}
	if said := IOErrors(other.Path); said != "" {
		t.Errorf("another device has met %q", said)
	}
	ioErrors.mu.Lock()
	ioErrors.seen[filepath.Base(loop.Path)].attachment += " of before"
	ioErrors.mu.Unlock()
	if said := IOErrors(loop.Path); said != "" {
		t.Errorf("attached again it has met %q", said)
	}
}

func TestIOErrors_OfTheDeviceBelowAFileSystemAreItsHealth(t *testing.T) {
	following(t)
	for _, fstype := range []string{"ext4", "xfs"} {
		image := remake(t, fileSystems[fstype], MkfsSpec{FSType: fstype})
		dir, device := mountLoop(t, image, fstype)
		if h := FSHealth(t.Context(), mountAt(t, dir)); h != (Health{}) {
			t.Errorf("a good %s: %+v", fstype, h)
		}
		failReading(t, image, device)
		if h := FSHealth(t.Context(), mountAt(t, dir)); !strings.Contains(h.Device, filepath.Base(device)) || h.Errors != "" {
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
