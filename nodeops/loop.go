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

// Loop is a loop device held open: until Close it cannot vanish, whatever becomes of its users.
type Loop struct {
	Path       string
	DirectIO   bool
	SectorSize int

	device    *os.File
	detaching File // what the last attempt was to detach it from
}

// LoopOptions says how to attach. An autoclear device vanishes with its last user, be that a mount or the Loop. Among
// are the devices that may be used, where this process was lent some; empty: any that is free.
type LoopOptions struct {
	ReadOnly, Autoclear bool
	Among               []string
}

// sectorSize is that of every device whose image allows it: direct I/O needs at least the sectors of the disk below.
const sectorSize = 4096

// AttachLoop attaches an image to a loop device, or returns the device that is attached to this very file already,
// now with o.Autoclear: two devices over one file would destroy it. A device that is writable serves a caller who
// wants to read only; the other way round is an error.
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
		if err := o.allows(device); err != nil {
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
	if len(o.Among) > 0 {
		return attachAmong(ctx, backing, o)
	}
	return attachFree(ctx, backing, o)
}

// lockFile keeps other processes that attach the same file away.
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

// attachFree configures the first free device. Another process may take it in between; then there is a next one.
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
			return nil, fmt.Errorf("asking for a free loop device: %w", err)
		}
		l, err := configureLoop(device, config, o)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO):
			return nil, fmt.Errorf("attaching %s: %w", backing.Name(), err)
		}
		// The winner of the race, or a prober that holds the device for a moment, needs time to go on.
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

// directIO says whether a loop device over the file should go past the page cache. On btrfs it must not: the pages
// of a mounted image may change while they are written, and the checksums of btrfs would then condemn the block.
func directIO(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Type != unix.BTRFS_SUPER_MAGIC, nil
}

func configureLoop(path string, config *unix.LoopConfig, o LoopOptions) (*Loop, error) {
	device, err := openLoop(path, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	before, errCounts := countedOf(path)
	err = unix.IoctlLoopConfigure(int(device.Fd()), config)
	if errors.Is(err, unix.EINVAL) && config.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0 {
		// Most kernels drop what the pool cannot do; some refuse it.
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
		return nil, fmt.Errorf("asking for the status of %s: %w", device.Name(), err)
	}
	sector, err := unix.IoctlGetInt(int(device.Fd()), unix.BLKSSZGET)
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("asking for the sector size of %s: %w", device.Name(), err)
	}
	direct := status.Flags&unix.LO_FLAGS_DIRECT_IO != 0
	return &Loop{Path: device.Name(), DirectIO: direct, SectorSize: sector, device: device}, nil
}

// reuseLoop takes over a device that is attached to the image already. It fails with ENXIO when the device vanishes in
// between, or is attached to another file once it is held.
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

// Close closes the device, if it is not closed yet. A device without autoclear stays attached.
func (l *Loop) Close() error {
	if err := l.device.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
