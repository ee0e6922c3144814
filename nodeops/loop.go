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
	Path       string
	DirectIO   bool
	SectorSize int

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
	unlock, err := lockFile(image)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
	}
	defer unlock()
	devices, err := LoopsOf(image)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
	}
	for _, device := range devices {
		if err := o.checkAllowed(device); err != nil {
			return nil, fmt.Errorf("attaching %s: %w", image, err)
		}
		l, err := reuseLoop(device, image, o)
		if !errors.Is(err, unix.ENXIO) && !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
	}
	backing, err := openBacking(image, o.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
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
		return nil, errors.Join(fmt.Errorf("attaching %s: %w", image, err), l.Detach(ctx), l.Close())
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
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices are out of reach, is the module loop loaded and /dev the host's: %w", err)
	}
	defer control.Close()
	config, err := loopConfig(backing, o)
	if err != nil {
		return nil, err
	}
	inUse, err := inUseByNode()
	if err != nil {
		return nil, err
	}
	for {
		device, err := freeLoop(control, inUse)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		l, err := configureLoop(device, config, o)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO):
			return nil, fmt.Errorf("attaching %s: %w", backing.Name(), err)
		}
		// Another process takes the device, or has it open for a moment.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("attaching %s: %w: %w", backing.Name(), ctx.Err(), err)
		case <-time.After(time.Millisecond):
		}
	}
}

func loopConfig(backing *os.File, o LoopOptions) (*unix.LoopConfig, error) {
	info, err := backing.Stat()
	if err != nil {
		return nil, err
	}
	fd := backing.Fd()
	if fd > math.MaxUint32 {
		return nil, fmt.Errorf("attaching %s: file descriptor %d is too large", backing.Name(), fd)
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

func configureLoop(path string, config *unix.LoopConfig, o LoopOptions) (*Loop, error) {
	device, err := openLoop(path, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	before, errCounts := countedOf(path)
	err = unix.IoctlLoopConfigure(int(device.Fd()), config)
	if errors.Is(err, unix.EINVAL) && config.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0 {
		// Most kernels ignore features that the file system lacks; some refuse them.
		buffered := *config
		buffered.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(device.Fd()), &buffered)
	}
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("configuring %s (Linux 5.8 or later is needed): %w", path, err)
	}
	if errCounts == nil {
		loopCounts.set(path, attachmentOf(filepath.Base(path)), before)
	}
	if !o.ReadOnly {
		if err := clearReadOnly(device); err != nil {
			l := &Loop{Path: path, device: device}
			return nil, errors.Join(fmt.Errorf("making %s writable: %w", path, err), l.Detach(context.Background()), l.Close())
		}
	}
	return describeLoop(device)
}

func openLoop(path string, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	return os.OpenFile(path, flags|unix.O_NOFOLLOW, 0)
}

func describeLoop(device *os.File) (*Loop, error) {
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("reading the status of %s: %w", device.Name(), err)
	}
	sector, err := unix.IoctlGetInt(int(device.Fd()), unix.BLKSSZGET)
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("reading the sector size of %s: %w", device.Name(), err)
	}
	direct := status.Flags&unix.LO_FLAGS_DIRECT_IO != 0
	return &Loop{Path: device.Name(), DirectIO: direct, SectorSize: sector, device: device}, nil
}

// reuseLoop opens a device that is attached to the image. It fails with ENXIO if the device was detached, or is
// attached to another file once it is open.
func reuseLoop(path, image string, o LoopOptions) (*Loop, error) {
	of, err := FileAt(image)
	if err != nil {
		return nil, err
	}
	device, err := openLoop(path, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err == nil && attachedTo(status) != of {
		err = fmt.Errorf("%s is now attached to another file than %s: %w", path, image, unix.ENXIO)
	}
	if err == nil && !o.ReadOnly && status.Flags&unix.LO_FLAGS_READ_ONLY != 0 {
		err = fmt.Errorf("%s is attached read-only as %s; stop its users first", image, path)
	}
	if err == nil {
		err = setAutoclear(device, status, o.Autoclear)
	}
	if err != nil {
		device.Close()
		return nil, err
	}
	return describeLoop(device)
}

func setAutoclear(device *os.File, status *unix.LoopInfo64, want bool) error {
	if want == (status.Flags&unix.LO_FLAGS_AUTOCLEAR != 0) {
		return nil
	}
	status.Flags ^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(device.Fd()), status); err != nil {
		return fmt.Errorf("setting autoclear of %s to %t: %w", device.Name(), want, err)
	}
	return nil
}

// Close closes the device if it is open. Without autoclear, the device stays attached.
func (l *Loop) Close() error {
	if err := l.device.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
