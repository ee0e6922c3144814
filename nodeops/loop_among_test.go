package nodeops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// unlikely is the number of the first device that the tests allocate: nothing else on a host uses such high numbers.
const unlikely = FirstReservedLoop + ReservedLoops - 64

// lend adds devices for the test, which are removed when it ends.
func lend(t *testing.T, first, count int) []string {
	t.Helper()
	requireRoot(t)
	t.Cleanup(func() {
		control := check.Got(os.OpenFile("/dev/loop-control", os.O_RDWR, 0))(t)
		defer control.Close()
		for number := range count {
			if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, first+number); err != nil && !errors.Is(err, unix.ENODEV) {
				t.Errorf("removing loop%d: %v", first+number, err)
			}
		}
	})
	return check.Got(AddLoops(first, count))(t)
}

func TestAttachLoop_UsesLentDevicesOnlyUntilNoneIsLeft(t *testing.T) {
	hostfs.NotInGate(t, "needs loop devices that no other process uses")
	devices := lend(t, unlikely, 8)
	if again, err := AddLoops(unlikely, 8); err != nil || !slices.Equal(again, devices) {
		t.Errorf("made again, they are %v, %v", again, err)
	}
	dir := t.TempDir()
	paths := make([]string, len(devices))
	var all sync.WaitGroup
	for i := range devices {
		image := filepath.Join(dir, fmt.Sprint(i))
		newSparse(t, image, mib)
		t.Cleanup(func() { detachAll(t, image) })
		all.Go(func() {
			l, err := AttachLoop(t.Context(), image, LoopOptions{Among: devices})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			paths[i] = l.Path
		})
	}
	all.Wait()
	if got := slices.Sorted(slices.Values(paths)); !slices.Equal(got, devices) {
		t.Errorf("they are attached to %v, want each of %v once", got, devices)
	}
	image := sparse(t, t.TempDir(), mib)
	if _, err := AttachLoop(t.Context(), image, LoopOptions{Among: devices}); !errors.Is(err, ErrNoLoop) || !strings.Contains(err.Error(), "all 8") {
		t.Errorf("one image too many: %v", err)
	}
	detachAll(t, filepath.Join(dir, "3"))
	if l := attach(t, image, LoopOptions{Among: devices}); l.Path != paths[3] {
		t.Errorf("it is attached to %s, free was %s", l.Path, paths[3])
	}
	again := attach(t, filepath.Join(dir, "5"), LoopOptions{Among: devices})
	if again.Path != paths[5] {
		t.Errorf("attached again it is at %s beside %s", again.Path, paths[5])
	}
}

func TestAttachLoop_ImageInUseElsewhereIsNotAttachedToALentDevice(t *testing.T) {
	devices := lend(t, unlikely, 1)
	image := sparse(t, t.TempDir(), mib)
	theirs := attach(t, image, LoopOptions{})
	_, err := AttachLoop(t.Context(), image, LoopOptions{Among: devices})
	if err == nil || !strings.Contains(err.Error(), theirs.Path) {
		t.Errorf("got %v, want an error that names %s", err, theirs.Path)
	}
	if got := loopsOf(t, image); len(got) != 1 {
		t.Errorf("it is attached to %v", got)
	}
}

func TestAttachLoop_ADeviceThatIsKeptForLendingIsNeverReused(t *testing.T) {
	devices := lend(t, unlikely, 1)
	image := sparse(t, t.TempDir(), mib)
	attach(t, image, LoopOptions{Among: devices})
	_, err := AttachLoop(t.Context(), image, LoopOptions{})
	if err == nil || !strings.Contains(err.Error(), devices[0]) || !strings.Contains(err.Error(), "allocated") {
		t.Errorf("got %v, want an error that names %s", err, devices[0])
	}
}

func TestAttachLoop_WithoutALentDeviceTakesNoneOfThoseKeptForLending(t *testing.T) {
	hostfs.NotInGate(t, "needs loop devices that no other process uses")
	requireRoot(t)
	lend(t, unlikely, 1)
	below := 0
	entries := check.Got(os.ReadDir("/sys/block"))(t)
	for _, e := range entries {
		if number := 0; scan(e.Name(), &number) && number < FirstReservedLoop {
			below++
		}
	}
	dir := t.TempDir()
	for i := range below + 1 { // one more than could be free
		image := filepath.Join(dir, fmt.Sprint(i))
		newSparse(t, image, mib)
		t.Cleanup(func() { detachAll(t, image) })
		l := check.Got(AttachLoop(t.Context(), image, LoopOptions{}))(t)
		l.Close()
		if number := 0; !scan(filepath.Base(l.Path), &number) || number >= FirstReservedLoop && number < FirstReservedLoop+ReservedLoops {
			t.Fatalf("image %d was attached to %s", i, l.Path)
		}
	}
}

func scan(name string, number *int) bool {
	n, err := fmt.Sscanf(name, "loop%d", number)
	return n == 1 && err == nil
}

func TestReclaim_DetachesEveryDeviceThatIsNeitherMountedNorOpen(t *testing.T) {
	devices := lend(t, unlikely, 5)
	only := func(i int) LoopOptions { return LoopOptions{Among: devices[i : i+1]} }
	left, held := sparse(t, t.TempDir(), mib), sparse(t, t.TempDir(), mib)
	attach(t, left, only(0)).Close()
	attach(t, held, only(1))

	mounted := newImage(t, "ext4", 16*mib)
	l := attach(t, mounted, only(2))
	target := t.TempDir()
	check.OK(t, unix.Mount(l.Path, target, "ext4", 0, ""))
	t.Cleanup(func() { unmountAll(t, target) })
	l.Close()

	theirs := sparse(t, t.TempDir(), mib)
	attachByHand(t, devices[3], theirs)

	free := check.Got(ReclaimLoops(t.Context(), devices))(t)
	if want := []string{devices[0], devices[3], devices[4]}; !slices.Equal(free, want) {
		t.Errorf("free are %v, want %v", free, want)
	}
	for _, image := range []string{left, theirs} {
		if got := loopsOf(t, image); len(got) > 0 {
			t.Errorf("what was left is attached to %v still", got)
		}
	}
	for i, image := range map[int]string{1: held, 2: mounted} {
		if got := loopsOf(t, image); !slices.Equal(got, devices[i:i+1]) {
			t.Errorf("%s is attached to %v, want %s", image, got, devices[i])
		}
	}
}

// attachByHand attaches a file without an allocation, as another program does.
func attachByHand(t *testing.T, device, image string) {
	t.Helper()
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	check.OK(t, err)
	defer f.Close()
	tick := time.NewTicker(time.Millisecond) // without a pause it would have it open nearly always, and it could not be detached
	defer tick.Stop()
	for err = unix.EBUSY; errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENXIO); <-tick.C { // while another process has it open
		err = onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(f.Fd())) })
	}
	check.OK(t, err)
	t.Cleanup(func() { detachAll(t, image) })
}
