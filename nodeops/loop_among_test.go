package nodeops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
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
	check.Same(t, check.Got(AddLoops(unlikely, 8))(t), devices) // again
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
	check.Same(t, slices.Sorted(slices.Values(paths)), devices)
	image := sparse(t, t.TempDir(), mib)
	check.Fails(t, check.ErrorOf(AttachLoop(t.Context(), image, LoopOptions{Among: devices})), ErrNoLoop, "all 8") // one image too many
	detachAll(t, filepath.Join(dir, "3"))
	check.Same(t, attach(t, image, LoopOptions{Among: devices}).Path, paths[3])                   // which was free
	check.Same(t, attach(t, filepath.Join(dir, "5"), LoopOptions{Among: devices}).Path, paths[5]) // again
}

func TestAttachLoop_ImageInUseElsewhereIsNotAttachedToALentDevice(t *testing.T) {
	devices := lend(t, unlikely, 1)
	image := sparse(t, t.TempDir(), mib)
	theirs := attach(t, image, LoopOptions{})
	check.Fails(t, check.ErrorOf(AttachLoop(t.Context(), image, LoopOptions{Among: devices})), nil, theirs.Path)
	isOn(t, image, theirs.Path)
}

func TestAttachLoop_ADeviceThatIsKeptForLendingIsNeverReused(t *testing.T) {
	devices := lend(t, unlikely, 1)
	image := sparse(t, t.TempDir(), mib)
	attach(t, image, LoopOptions{Among: devices})
	check.Fails(t, check.ErrorOf(AttachLoop(t.Context(), image, LoopOptions{})), nil, devices[0], "allocated")
}

func TestAttachLoop_WithoutALentDeviceTakesNoneOfThoseKeptForLending(t *testing.T) {
	hostfs.NotInGate(t, "needs loop devices that no other process uses")
	requireRoot(t)
	lend(t, unlikely, 1)
	below := 0
	for _, name := range names(t, "/sys/block") {
		if number := 0; scan(name, &number) && number < FirstReservedLoop {
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
	check.Same(t, free, []string{devices[0], devices[3], devices[4]})
	isOn(t, left)
	isOn(t, held, devices[1])
	isOn(t, mounted, devices[2])
	isOn(t, theirs)
}

// attachByHand attaches a file without an allocation, as another program does.
func attachByHand(t *testing.T, device, image string) {
	t.Helper()
	f := check.Got(os.OpenFile(image, os.O_RDWR, 0))(t)
	defer f.Close()
	wait.Until(t, "the attachment, once no other process has the device open", func() bool {
		return onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(f.Fd())) }) == nil
	})
	t.Cleanup(func() { detachAll(t, image) })
}
