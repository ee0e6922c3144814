package nodeops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// attach attaches an image until the test ends.
func attach(t testing.TB, image string, o LoopOptions) *Loop {
	t.Helper()
	requireRoot(t)
	l := check.Got(AttachLoop(t.Context(), image, o))(t)
	t.Cleanup(func() { l.Close() })
	if !o.Autoclear {
		t.Cleanup(func() { detachAll(t, image) })
	}
	return l
}

func detachAll(t testing.TB, image string) {
	t.Helper()
	for _, device := range loopsOf(t, image) {
		err := onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
		if err != nil && !errors.Is(err, unix.ENXIO) {
			t.Errorf("detaching %s: %v", device, err)
		}
	}
}

func fileAt(t testing.TB, path string) File {
	t.Helper()
	return check.Got(FileAt(path))(t)
}

func loopsOf(t testing.TB, image string) []string {
	t.Helper()
	devices, err := LoopsOf(image)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return devices
}

// isOn fails unless an image is attached to exactly these devices.
func isOn(t testing.TB, image string, devices ...string) {
	t.Helper()
	if got := loopsOf(t, image); !slices.Equal(got, devices) {
		t.Errorf("%s is attached to %v, want %v", image, got, devices)
	}
}

func sparse(t testing.TB, dir string, size int64) string {
	t.Helper()
	image := filepath.Join(dir, "image")
	newSparse(t, image, size)
	return image
}

func TestAttachLoop_DeviceHasDirectIOAndLargeSectorsWhereThePoolAllows(t *testing.T) {
	requireRoot(t)
	for _, c := range []struct {
		pool   string
		size   int64
		direct bool
		sector int
	}{
		{"ext4", 8 * mib, true, 4096},
		{"xfs", 8 * mib, true, 4096},
		{"btrfs", 8 * mib, isLinux6(15), 4096},
		{"ext4", 8*mib + 512, false, 512},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.pool, c.size), func(t *testing.T) {
			dir := newFS(t, c.pool, fileSystems[c.pool])
			l := attach(t, sparse(t, dir, c.size), LoopOptions{})
			sector, err := unix.IoctlGetInt(int(l.device.Fd()), unix.BLKSSZGET)
			if err != nil || sector != c.sector {
				t.Errorf("sectors of %d bytes, %v, want %d", sector, err, c.sector)
			}
			// Whether direct I/O works with 512-byte sectors depends on the disk below.
			direct := check.Got(l.status())(t).Flags&unix.LO_FLAGS_DIRECT_IO != 0
			if direct != c.direct && c.sector == 4096 {
				t.Errorf("direct I/O: %t, want %t", direct, c.direct)
			}
		})
	}
}

func TestAttachLoop_WhatChangesWhileItIsWrittenBreaksNoChecksumOfBtrfs(t *testing.T) {
	pool := newFS(t, "btrfs", gib)
	device := attach(t, sparse(t, pool, 256*mib), LoopOptions{}).Path
	f := check.Got(os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0))(t)
	defer f.Close()
	pages := check.Got(unix.Mmap(-1, 0, int(mib), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE))(t)
	defer func() { check.Report(t, unix.Munmap(pages)) }()
	var changer sync.WaitGroup
	stop := make(chan struct{})
	changer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				pages[i*13%len(pages)]++
			}
		}
	})
	for i := range int64(500) {
		check.Got(f.WriteAt(pages, i*mib%(256*mib)))(t)
	}
	close(stop)
	changer.Wait()
	check.OK(t, f.Sync())
	if out := command(t, "btrfs", "scrub", "start", "-B", pool); !strings.Contains(out, "no errors found") {
		t.Error(out)
	}
}

func TestAttachLoop_ImageIsNeverAttachedTwice(t *testing.T) {
	dir := t.TempDir()
	image := sparse(t, dir, mib)
	first := attach(t, image, LoopOptions{})

	hardLink := filepath.Join(dir, "other")
	check.OK(t, os.Link(image, hardLink))
	moved := filepath.Join(dir, "moved")
	check.OK(t, os.Rename(image, moved))
	for _, path := range []string{hardLink, moved} {
		if again := attach(t, path, LoopOptions{}); again.Path != first.Path {
			t.Errorf("%s was attached to %s beside %s", path, again.Path, first.Path)
		}
	}
	if other := attach(t, sparse(t, t.TempDir(), mib), LoopOptions{}); other.Path == first.Path {
		t.Errorf("another image of the same name got the same device %s", other.Path)
	}
}

func TestAttachLoop_ManyAtOnceGetADeviceForEachImage(t *testing.T) {
	requireRoot(t)
	for _, images := range []int{1, 16} {
		dir := t.TempDir()
		image := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
		for i := range images {
			newSparse(t, image(i), mib)
			t.Cleanup(func() { detachAll(t, image(i)) })
		}
		paths := make([]string, 16)
		var all sync.WaitGroup
		for i := range paths {
			all.Go(func() {
				l, err := AttachLoop(t.Context(), image(i%images), LoopOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				paths[i] = l.Path
				if at, err := BackingFile(l.Path); err != nil || at != image(i%images) {
					t.Errorf("%s is attached to %s (%v), not %s", l.Path, at, err, image(i%images))
				}
			})
		}
		all.Wait()
		if got := slices.Compact(slices.Sorted(slices.Values(paths))); len(got) != images {
			t.Errorf("%d images were attached to %v", images, paths)
		}
	}
}

func TestAttachLoop_ReuseTakesTheAutoclearOfTheLastCaller(t *testing.T) {
	image := sparse(t, t.TempDir(), mib)
	attach(t, image, LoopOptions{}).Close()
	l := attach(t, image, LoopOptions{Autoclear: true})
	l.Close()
	isOn(t, image)
	held := attach(t, image, LoopOptions{Autoclear: true})
	attach(t, image, LoopOptions{}).Close()
	held.Close()
	isOn(t, image, held.Path)
}

func TestLoop_ReadOnlyDeviceRefusesWritesAndWriters(t *testing.T) {
	image := sparse(t, t.TempDir(), mib)
	l := attach(t, image, LoopOptions{ReadOnly: true})
	f, err := os.OpenFile(l.Path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		f.Close()
	}
	check.Fails(t, err, nil)
	check.Fails(t, check.ErrorOf(AttachLoop(t.Context(), image, LoopOptions{})), nil, "read-only")
}

func TestDetach_IsRepeatableAndTakesEffectOnReleaseWhereItIsInUse(t *testing.T) {
	image := sparse(t, t.TempDir(), mib)
	file := fileAt(t, image)
	l := attach(t, image, LoopOptions{})
	l.Close()
	for range 2 {
		check.OK(t, DetachLoop(t.Context(), l.Path, file))
	}
	isOn(t, image)
	check.Report(t, DetachLoop(t.Context(), "/dev/loop9999999", file)) // a device that does not exist
	l = attach(t, image, LoopOptions{})
	check.Fails(t, DetachLoop(t.Context(), l.Path, file), unix.EBUSY)
	l.Close()
	isOn(t, image)
}

func TestDetach_OfADeviceThatIsAnothersLetsItBe(t *testing.T) {
	lent := lend(t, unlikely, 1) // so that both get the same device
	one, other := sparse(t, t.TempDir(), mib), sparse(t, t.TempDir(), mib)
	file := fileAt(t, one)
	first := attach(t, one, LoopOptions{Among: lent})
	check.OK(t, first.Detach(t.Context()))
	next := attach(t, other, LoopOptions{Among: lent})
	next.Close()
	for _, detach := range []func() error{
		func() error { return DetachLoop(t.Context(), lent[0], file) },
		func() error { return first.Detach(t.Context()) }, // again, as after a failure
	} {
		if err := detach(); err != nil || !IsAttached(lent[0], other) {
			t.Errorf("%v; attached to the other image: %t", err, IsAttached(lent[0], other))
		}
	}
}

func TestLoop_DeviceReusedForAnotherImageCountsAsDetached(t *testing.T) {
	lent := lend(t, unlikely, 1) // no other test uses it
	one, other := sparse(t, t.TempDir(), mib), sparse(t, t.TempDir(), mib)
	for range 5 { // usually it is attached to another file between two reads of DetachLoop
		l := attach(t, one, LoopOptions{Among: lent})
		ended := make(chan error, 1)
		file := fileAt(t, one)
		go func() { ended <- DetachLoop(t.Context(), l.Path, file) }()
		for asked := false; !asked; {
			status := check.Got(unix.IoctlLoopGetStatus64(int(l.device.Fd())))(t)
			asked = status.Flags&unix.LO_FLAGS_AUTOCLEAR != 0
		}
		l.Close()
		attachByHand(t, l.Path, other)
		check.Report(t, <-ended)
		detachAll(t, other)
	}
}

func TestLoop_DeletedImageIsNotMistakenForItsSuccessor(t *testing.T) {
	image := sparse(t, t.TempDir(), mib)
	attach(t, image, LoopOptions{Autoclear: true})
	check.OK(t, os.Remove(image))
	newSparse(t, image, mib)
	isOn(t, image)
}

func TestAttachLoop_OnlyRegularFilesAreAttached(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	check.OK(t, os.Symlink(sparse(t, dir, mib), link))
	fifo := filepath.Join(dir, "fifo")
	check.OK(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{link, fifo, dir, filepath.Join(dir, "missing")} {
		if l, err := AttachLoop(t.Context(), path, LoopOptions{}); err == nil {
			t.Errorf("%s was attached to %s", path, l.Path)
			detachAll(t, path)
		}
	}
}

func TestLoopsIn_AreThoseOfTheListThatHaveASize(t *testing.T) {
	const list = "major minor  #blocks  name\n\n   7        0      57452 loop0\n   7        1       1024 loop0p1\n 254        0  268435456 vda\n" +
		"   7     1300          4 loop1300\n   9        0       1000 loopy\n half a line"
	check.Same(t, loopsIn(list), []string{"/dev/loop0", "/dev/loop1300"})
}

func TestSteady_IsWhatWasReadTwice(t *testing.T) {
	for _, test := range []struct {
		readings []string
		want     string
		ok       bool
	}{
		{[]string{"a b", "a b"}, "a b", true},
		{[]string{"a", "a b", "a b"}, "a b", true}, // b was left out, since what was before it went
		{[]string{"a", "b"}, "", false},            // it cannot be read any more
		{nil, "", false},
		{strings.Split("a b c d e f g h i j k k", " "), "", false}, // it never stands still
	} {
		left := test.readings
		list, ok := steady(func() ([]byte, error) {
			if len(left) == 0 {
				return nil, fs.ErrNotExist
			}
			now := left[0]
			left = left[1:]
			return []byte(now), nil
		})
		if list != test.want || ok != test.ok {
			t.Errorf("%q: %q, %t", test.readings, list, ok)
		}
	}
}
