package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LoopsOf returns the devices that are attached to this file, regardless of the path under which it was attached.
func LoopsOf(image string) ([]string, error) {
	info, err := os.Lstat(image)
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, device := range AttachedLoops() {
		if isBackedBy(info, image, device) {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// AttachedLoops returns all devices that are attached to a file, and some that are being detached. A device stays for ever once it
// was made, and a machine may have thousands: the kernel's list of partitions has only those that have a size. The kernel goes on in
// that list by counting, and leaves a device out when one before it goes in between. A device that is missed could be attached again,
// so the list counts once it was read twice as the same.
func AttachedLoops() (devices []string) {
	if list, ok := steady(func() ([]byte, error) { return os.ReadFile("/proc/partitions") }); ok {
		return loopsIn(list)
	}
	attached, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is valid
	for _, file := range attached {
		devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
	}
	return devices
}

// steady reads until two readings are the same. There is none if it cannot be read, or does not stand still.
func steady(read func() ([]byte, error)) (list string, ok bool) {
	const most = 10
	for i := range most {
		now, err := read()
		if err != nil {
			return "", false
		}
		if i > 0 && string(now) == list {
			return list, true
		}
		list = string(now)
	}
	return "", false
}

// loopsIn parses the format of /proc/partitions: major, minor, blocks, name.
func loopsIn(list string) (devices []string) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			continue
		}
		number, isLoop := strings.CutPrefix(fields[3], "loop")
		if _, err := strconv.ParseUint(number, 10, 32); isLoop && err == nil {
			devices = append(devices, "/dev/"+fields[3])
		}
	}
	return devices
}

// isBackedBy queries the device for the device and inode numbers of its file: the path is no proof, since any user can
// create a file of any path in a mount namespace. The path only excludes devices of other files, which are not opened:
// opening a device delays its autoclear. A device that cannot be queried does not match.
func isBackedBy(info os.FileInfo, image, device string) bool {
	name, err := BackingFile(device)
	if err != nil {
		return false
	}
	// The path of a file that was deleted, or attached in another mount namespace, means nothing here.
	if other, err := os.Lstat(name); err == nil && !os.SameFile(info, other) && tail(name) != tail(image) {
		return false
	}
	of, err := LoopFile(device)
	return err == nil && of == fileOf(info)
}

func tail(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
}

// BackingFile returns the path of the image of a device, as the kernel reports it; ErrNotExist if the device is not
// attached.
func BackingFile(device string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return strings.TrimSuffix(string(b), "\n"), err
}

// If other processes have a device open, even for a moment, the kernel detaches it when the last of them closes it.
const (
	detachGrace = time.Second
	detachPause = 2 * time.Millisecond
)

// DetachLoop detaches a device from this file and waits until it is detached. It does nothing if the device is not
// attached, or attached to another file. If another process has the device open it fails with EBUSY, and the kernel
// detaches it when that closes it.
func DetachLoop(ctx context.Context, device string, from File) error {
	return detachIf(ctx, device, func(now File) bool { return now == from })
}

func detachIf(ctx context.Context, device string, meant func(now File) bool) error {
	f, err := openLoop(device, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENXIO): // it is being detached
		return awaitDetached(ctx, device, func() (bool, error) { return !attached(device), nil })
	case err != nil:
		return fmt.Errorf("detaching %s: %w", device, err)
	}
	l := &Loop{Path: device, device: f}
	now, err := l.file()
	if err == nil && meant(now) {
		err = l.Detach(ctx)
	}
	if errors.Is(err, unix.ENXIO) {
		err = nil
	}
	return errors.Join(err, l.Close())
}

// Detach detaches the device, closes it, and waits until it is free. While another process has it open, it fails with
// EBUSY and stays open: if another process were the last to close it, the device could become free while that process
// still uses it.
func (l *Loop) Detach(ctx context.Context) error {
	before, err := l.file()
	switch {
	case errors.Is(err, unix.ENXIO):
		return l.Close()
	case errors.Is(err, unix.EBADF): // an earlier attempt has closed it
		return DetachLoop(ctx, l.Path, l.detaching)
	case err != nil:
		return fmt.Errorf("detaching %s: %w", l.Path, err)
	}
	l.detaching = before
	if err := l.sync(); err != nil {
		return err
	}
	if err := awaitDetached(ctx, l.Path, func() (bool, error) { return l.clear(before) }); err != nil {
		return err
	}
	if err := clearReadOnly(l.device); err != nil {
		return fmt.Errorf("making %s writable for its next user: %w", l.Path, err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	return awaitDetached(ctx, l.Path, func() (bool, error) { return !stillAttached(l.Path, before), nil })
}

// sync writes what is only in the page cache of the device: the kernel drops that when the last user of a device has
// requested its detach. A disk that fails must not keep the volume from leaving, and has reported that already.
func (l *Loop) sync() error {
	err := unix.Fsync(int(l.device.Fd()))
	if err == nil || errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return fmt.Errorf("syncing %s before it is detached: %w", l.Path, err)
}

// awaitDetached waits for a limited time until a device is detached.
func awaitDetached(ctx context.Context, device string, detached func() (bool, error)) error {
	done, err := tryAgain(ctx, detachGrace, detachPause, detached)
	switch {
	case done:
		return nil
	case err != nil:
		return fmt.Errorf("detaching %s: %w", device, err)
	}
	return fmt.Errorf("detaching %s: %w: another process has it open; it is detached when that closes it", device, unix.EBUSY)
}

// clear requests the detach of the device, which happens when it is closed, unless another process has it open. Before
// Linux 6.10 another process may attach it again immediately; that attachment must not be detached.
func (l *Loop) clear(before File) (alone bool, err error) {
	err = unix.IoctlSetInt(int(l.device.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	now, err := l.file()
	if errors.Is(err, unix.ENXIO) {
		return true, nil
	}
	return err == nil && now != before, err
}

// stillAttached returns whether a device is attached to the same file as before.
func stillAttached(device string, before File) bool {
	if !attached(device) {
		return false
	}
	now, err := LoopFile(device)
	return err == nil && now == before || err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, fs.ErrNotExist)
}

// GrowLoop updates the size of a device to that of its image.
func GrowLoop(device string) error {
	err := onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
	if err != nil {
		return fmt.Errorf("growing %s to the size of its image: %w", device, err)
	}
	return nil
}

// SyncDevice flushes the caches of a block device and of those below it.
func SyncDevice(device string) error {
	if err := onDevice(device, unix.Fsync); err != nil {
		return fmt.Errorf("syncing %s: %w", device, err)
	}
	return nil
}

func onDevice(device string, do func(fd int) error) error {
	f, err := openLoop(device, true)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}
