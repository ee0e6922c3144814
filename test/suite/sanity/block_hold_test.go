package sanity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const changeFD = 0x4C06 // LOOP_CHANGE_FD of linux/loop.h

// asked is what a container may ask of the device whose node it has, some of it without any capability.
var asked = map[string]func(w *world, f *os.File) error{
	"LOOP_CLR_FD": func(_ *world, f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) },
	"LOOP_CLR_FD twice": func(_ *world, f *os.File) error {
		return errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0), unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0))
	},
	"LOOP_SET_STATUS64 with LO_FLAGS_AUTOCLEAR": func(_ *world, f *os.File) error {
		return changeStatus(f, func(s *unix.LoopInfo64) { s.Flags |= unix.LO_FLAGS_AUTOCLEAR })
	},
	"LOOP_SET_STATUS64 with an offset": func(_ *world, f *os.File) error {
		return changeStatus(f, func(s *unix.LoopInfo64) { s.Offset = mib })
	},
	"LOOP_SET_STATUS64 with a size limit and partitions": func(_ *world, f *os.File) error {
		return changeStatus(f, func(s *unix.LoopInfo64) { s.Sizelimit, s.Flags = mib, s.Flags|unix.LO_FLAGS_PARTSCAN })
	},
	"LOOP_SET_BLOCK_SIZE": func(_ *world, f *os.File) error {
		return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_BLOCK_SIZE, 4096)
	},
	"LOOP_SET_CAPACITY": func(_ *world, f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0) },
	"LOOP_SET_DIRECT_IO": func(_ *world, f *os.File) error {
		return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_DIRECT_IO, 0)
	},
	"LOOP_SET_FD":    func(w *world, f *os.File) error { return refused(w.ownFile(f, unix.LOOP_SET_FD)) },
	"LOOP_CHANGE_FD": func(w *world, f *os.File) error { return refused(w.ownFile(f, changeFD)) },
	"LOOP_CONFIGURE": func(w *world, f *os.File) error {
		return refused(w.withOwnFile(func(file *os.File) error {
			return unix.IoctlLoopConfigure(int(f.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd())})
		}))
	},
}

func changeStatus(f *os.File, change func(*unix.LoopInfo64)) error {
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return err
	}
	change(status)
	return unix.IoctlLoopSetStatus64(int(f.Fd()), status)
}

// ownFile would have the device show a file of the container.
func (w *world) ownFile(device *os.File, request uint) error {
	w.Helper()
	return w.withOwnFile(func(file *os.File) error { return unix.IoctlSetInt(int(device.Fd()), request, int(file.Fd())) })
}

func (w *world) withOwnFile(do func(*os.File) error) error {
	w.Helper()
	file, err := os.Create(filepath.Join(w.scratch, "own"))
	w.must(err)
	defer file.Close()
	w.must(file.Truncate(512 * mib))
	return do(file)
}

// refused makes a success of a failure.
func refused(err error) error {
	if err == nil {
		return errors.New("the kernel did it")
	}
	return nil
}

// number is that of the device at a target.
func (w *world) number(target string) uint64 {
	w.Helper()
	var st unix.Stat_t
	w.must(unix.Stat(w.path(target), &st))
	return st.Rdev
}

func aBlockVolumeKeepsItsDeviceWhateverItsContainerAsks(w *world) {
	first := w.createBlock("v").GetVolumeId()
	w.use(first, "first", block(multiWriter))
	next, size := w.createBlock("w").GetVolumeId(), w.deviceSize("first")
	for _, restart := range []bool{false, true} {
		for what, ask := range asked {
			w.must(w.writeDevice("first", "of the first"))
			if restart {
				w.restart()
			}
			w.must(w.onDevice("first", os.O_RDWR, func(f *os.File) error { return ask(w, f) }))
			w.use(next, "next", block(multiWriter))
			w.must(w.writeDevice("next", "of the next"))
			if w.number("first") == w.number("next") {
				w.Fatalf("%s, restarted %t: the next volume got the device that another is published with", what, restart)
			}
			w.release(next, "next")
			w.must(w.publish(first, "first", block(multiWriter), false))
			if got := w.readDevice("first"); got != "of the first" {
				w.Errorf("%s, restarted %t: the first volume shows %q", what, restart, got)
			}
			if got := w.deviceSize("first"); got != size {
				w.Errorf("%s, restarted %t: the first volume has %d bytes, want %d", what, restart, got, size)
			}
		}
	}
	w.release(first, "first")
	w.remove(first)
	w.remove(next)
	w.nothingLeft()
}

// A container that has its device made read-only does it to itself.
func aBlockVolumeThatItsContainerMadeReadOnlyIsWrittenByTheNext(w *world) {
	id, next := w.createBlock("v").GetVolumeId(), w.createBlock("w").GetVolumeId()
	for _, restart := range []bool{false, true} {
		w.use(id, "target", block(multiWriter))
		w.must(w.writeDevice("target", "of the first"))
		w.must(w.onDevice("target", os.O_RDWR, func(f *os.File) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 1) }))
		if err := w.writeDevice("target", "more"); err == nil {
			w.Error("the device is not read-only: this tests nothing")
		}
		if restart {
			w.restart()
		}
		w.release(id, "target")
		// Both get a device, one of them perhaps that one.
		for _, volume := range []string{id, next} {
			w.use(volume, volume, block(multiWriter))
			w.must(w.writeDevice(volume, "of the next"))
		}
		w.release(id, id)
		w.release(next, next)
	}
	w.remove(id)
	w.remove(next)
	w.nothingLeft()
}

// What was asked takes effect when no process has the device open: as when the process is killed, where the kubelet has not
// opened it either.
func aBlockVolumeWhoseDeviceWasLostIsNeverPublished(w *world) {
	first := w.createBlock("v").GetVolumeId()
	w.use(first, "first", block(multiWriter))
	w.must(w.writeDevice("first", "of the first"))
	w.must(w.onDevice("first", os.O_RDONLY, func(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) }))
	w.restart()
	if loops := w.loops(); len(loops) > 0 {
		hostfs.Skip(w.T, "own-loops", fmt.Sprintf("another has the device open: it was not detached, and stays attached to %v", loops))
	}
	next := w.createBlock("w").GetVolumeId()
	w.use(next, "next", block(multiWriter))
	w.must(w.writeDevice("next", "of the next"))
	if w.number("first") == w.number("next") {
		w.Fatal("the next volume got the device whose node is still seen")
	}
	w.expectError(w.publish(first, "again", block(multiWriter), false), codes.FailedPrecondition)
	w.release(first, "first")
	w.use(first, "again", block(multiWriter))
	if got := w.readDevice("again"); got != "of the first" {
		w.Errorf("staged again it shows %q", got)
	}
	w.release(first, "again")
	w.release(next, "next")
	w.remove(first)
	w.remove(next)
	w.nothingLeft()
}

func aBlockVolumeWhoseDeviceIsAnotherProgramsLeavesTheNode(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.use(id, "target", block(multiWriter))
	w.must(w.onDevice("target", os.O_RDONLY, func(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) }))
	device := w.loops()[0]
	w.Kill() // no process has it open any more
	theirs := w.path("theirs")
	w.must(os.WriteFile(theirs, make([]byte, mib), 0o600))
	out, err := exec.Command("losetup", device, theirs).CombinedOutput()
	if err == nil {
		defer hostfs.DetachAll(w.T, []string{device})
	} else {
		w.Logf("another test has it by now, which will do: %v: %s", err, out)
	}
	w.start()
	w.release(id, "target")
	if err == nil && !nodeops.IsAttached(device, theirs) {
		w.Errorf("%s was taken from the other program", device)
	}
	w.use(id, "target", block(multiWriter))
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

func theFileOfABlockVolumeForReadersCannotBeChanged(w *world) {
	id := w.createBlock("v").GetVolumeId()
	w.must(w.stage(id, block(readerOnly)))
	w.must(w.publish(id, "reader", block(readerOnly), false))
	if err := w.onDevice("reader", os.O_RDONLY, func(f *os.File) error { return w.ownFile(f, changeFD) }); err == nil {
		w.Error("a reader of the volume has put its own file in its place")
	}
	if err := w.writeDevice("reader", "written"); err == nil || !strings.Contains(err.Error(), "permitted") {
		w.Errorf("a volume for readers only was written to: %v", err)
	}
	w.release(id, "reader")
	// The device has no owner any more, and the next to get it may write.
	w.use(id, "writer", block(multiWriter))
	w.must(w.writeDevice("writer", "written"))
	w.release(id, "writer")
	w.remove(id)
	w.nothingLeft()
}
