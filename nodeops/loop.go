package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Loop is a loop device that is held open, so that it stays attached until Close.
type Loop struct {
	Path string

	device    *os.File
	detaching File // the file of the last attempt to detach
}

// LoopOptions are options of AttachLoop. An Autoclear device is detached when its last user, a mount or the Loop,
// closes it. Among are the devices that this process was allocated; empty: any free device.
type LoopOptions struct {
	ReadOnly, Autoclear bool
	Among               []string
}

// sectorSize is the logical sector size, if the size of the image allows it: direct I/O requires at least that of the
// disk below.
const sectorSize = 4096

// AttachLoop attaches an image to a loop device, or returns the device to which this file is attached, with o.Autoclear
// set: a second device on the same file would destroy it. An existing writable device is returned for a read-only
// request; the reverse is an error.
func AttachLoop(ctx context.Context, image string, o LoopOptions) (*Loop, error) {
	l, err := attachLoop(ctx, image, o)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
	}
	return l, nil
}

func attachLoop(ctx context.Context, image string, o LoopOptions) (*Loop, error) {
	unlock, err := lockFile(image)
	if err != nil {
		return nil, err
	}
	defer unlock()
	devices, err := LoopsOf(image)
	if err != nil {
		return nil, err
	}
	for _, device := range devices {
		if err := o.checkAllowed(device); err != nil {
			return nil, err
		}
		l, err := reuseLoop(device, image, o)
		if !errors.Is(err, unix.ENXIO) && !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
	}
	backing, err := openBacking(image, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	attachTo := attachFree
	if len(o.Among) > 0 {
		attachTo = attachAmong
	}
	if o.ReadOnly {
		return attachTo(ctx, backing, o)
	}
	quiet := withoutTimestamps(backing)
	if quiet == nil {
		return attachTo(ctx, backing, o)
	}
	defer quiet.Close() // beside backing, which keeps the name by which the kernel shows the file
	l, err := attachTo(ctx, quiet, o)
	if err != nil {
		return nil, err
	}
	// Before anything is written, so that a copy sees that the image was put to use since it looked.
	if err := stamp(backing); err != nil {
		return nil, errors.Join(err, l.Detach(ctx), l.Close())
	}
	return l, nil
}

// lockFile prevents other processes from attaching the same file at the same time.
func lockFile(path string) (unlock func(), err error) {
	f, err := Lock(func(flag int) (*os.File, error) { return openBacking(path, flag == os.O_RDONLY) }, unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func openBacking(image string, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(image, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %s, not a regular file", image, info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// attachFree configures the first free device. If another process takes it first, it tries the next one.
func attachFree(ctx context.Context, backing *os.File, o LoopOptions) (*Loop, error) {
	control, err := openLoopControl()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	inUse, err := inUseByNode()
	if err != nil {
		return nil, err
	}
	for {
		device, err := freeLoop(control, inUse)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		l, err := configureLoop(device, backing, o)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) {
			return l, err
		}
		// Another process takes the device, or has it open for a moment.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(time.Millisecond):
		}
	}
}

func openLoopControl() (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices are out of reach, is the module loop loaded and /dev the host's: %w", err)
	}
	return control, nil
}

func loopConfig(backing *os.File, o LoopOptions) (*unix.LoopConfig, error) {
	info, err := backing.Stat()
	if err != nil {
		return nil, err
	}
	fd := backing.Fd()
	if fd > math.MaxUint32 {
		return nil, fmt.Errorf("file descriptor %d is too large", fd)
	}
	config := &unix.LoopConfig{Fd: uint32(fd), Size: sectorSize}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], backing.Name())
	if info.Size()%sectorSize != 0 {
		config.Size = 512
	}
	direct, err := directIO(backing)
	if err != nil {
		return nil, err
	}
	if direct {
		config.Info.Flags |= unix.LO_FLAGS_DIRECT_IO
	}
	if o.Autoclear {
		config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if o.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	return config, nil
}

// directIO returns whether a loop device on the file should bypass the page cache. On btrfs it must not before Linux 6.15:
// pages of a mounted image may change while they are written, and then the checksum of the block was wrong. Since then btrfs
// itself writes what has checksums by the page cache, and reads without it.
func directIO(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Type != unix.BTRFS_SUPER_MAGIC || isLinux6(15), nil
}

func configureLoop(path string, backing *os.File, o LoopOptions) (*Loop, error) {
	config, err := loopConfig(backing, o)
	if err != nil {
		return nil, err
	}
	device, err := openLoop(path, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	before, errCounts := countedOf(path)
	err = unix.IoctlLoopConfigure(int(device.Fd()), config)
	if errors.Is(err, unix.EINVAL) && config.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0 {
		// Most kernels ignore features that the file system lacks; some refuse them.
		config.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(device.Fd()), config)
	}
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("configuring %s (Linux 5.8 or later is needed): %w", path, err)
	}
	if errCounts == nil {
		loopCounts.set(path, attachmentOf(filepath.Base(path)), before)
	}
	l := &Loop{Path: path, device: device}
	if !o.ReadOnly {
		if err := clearReadOnly(device); err != nil {
			return nil, errors.Join(fmt.Errorf("making %s writable: %w", path, err), l.Detach(context.Background()), l.Close())
		}
	}
	return l, nil
}

func openLoop(path string, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	return os.OpenFile(path, flags|unix.O_NOFOLLOW, 0)
}

// reuseLoop opens a device that is attached to the image. It fails with ENXIO if the device was detached, or is
// attached to another file once it is open.
func reuseLoop(path, image string, o LoopOptions) (*Loop, error) {
	device, err := openLoop(path, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	l := &Loop{Path: path, device: device}
	status, err := l.statusOf(image)
	switch {
	case err != nil:
	case !o.ReadOnly && status.Flags&unix.LO_FLAGS_READ_ONLY != 0:
		err = fmt.Errorf("it is attached read-only as %s; stop its users first", path)
	case o.Autoclear != (status.Flags&unix.LO_FLAGS_AUTOCLEAR != 0):
		status.Flags ^= unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopSetStatus64(int(device.Fd()), status); err != nil {
			err = fmt.Errorf("setting autoclear of %s to %t: %w", path, o.Autoclear, err)
		}
	}
	if err != nil {
		device.Close()
		return nil, err
	}
	return l, nil
}

// Close closes the device if it is open. Without autoclear, the device stays attached.
func (l *Loop) Close() error {
	if err := l.device.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
