package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LoopsOf names the devices that are attached to this very file, whatever path it was attached under.
func LoopsOf(image string) ([]string, error) {
	info, err := os.Lstat(image)
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, device := range AttachedLoops() {
		if backs(info, image, device) {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// AttachedLoops names the devices that are attached to anything.
func AttachedLoops() (devices []string) {
	attached, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is well formed
	for _, file := range attached {
		devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
	}
	return devices
}

// backs asks the device itself which file it is attached to, by device and inode: a name proves nothing, since anybody can
// make a file of any path in a mount namespace of his own. Names only spare asking devices that are others' for sure: a
// device that is held open for the question outlives its last user by that moment. What cannot be asked is no match.
func backs(info os.FileInfo, image, device string) bool {
	name, err := BackingFile(device)
	if err != nil {
		return false
	}
	// One whose file was deleted, or attached in another mount namespace, has a name that means nothing here.
	if other, err := os.Lstat(name); err == nil && !os.SameFile(info, other) && tail(name) != tail(image) {
		return false
	}
	of, err := LoopFile(device)
	return err == nil && of == fileOf(info)
}

func tail(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
}

// BackingFile is the path of the image that a device is attached to, as the kernel sees it; ErrNotExist when none.
func BackingFile(device string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return strings.TrimSuffix(string(b), "\n"), err
}

// The kernel detaches a device that others hold open, if only a prober for a moment, when the last of them closes it.
const (
	detachGrace = time.Second
	detachPause = 2 * time.Millisecond
)

// DetachLoop detaches a device from that very file and returns when it is done; a device that is attached to nothing, or
// to another file by now, is let be. When someone keeps it open it fails with EBUSY, and the device goes as soon as they
// close it.
func DetachLoop(ctx context.Context, device string, from File) error {
	return detachIf(ctx, device, func(now File) bool { return now == from })
}

func detachIf(ctx context.Context, device string, meant func(now File) bool) error {
	f, err := openLoop(device, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENXIO): // it is being detached
		return until(ctx, device, func() (bool, error) { return !attached(device), nil })
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

// Detach detaches the device, closes it and returns when it is free. While another process has it open it fails with
// EBUSY and stays held: a device that another process is the last to have open may become free while that still uses
// it.
func (l *Loop) Detach(ctx context.Context) error {
	before, err := l.file()
	switch {
	case errors.Is(err, unix.ENXIO):
		return l.Close()
	case errors.Is(err, unix.EBADF): // an attempt before has closed it already
		return DetachLoop(ctx, l.Path, l.detaching)
	case err != nil:
		return fmt.Errorf("detaching %s: %w", l.Path, err)
	}
	l.detaching = before
	if err := until(ctx, l.Path, func() (bool, error) { return l.clear(before) }); err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	return until(ctx, l.Path, func() (bool, error) { return !stillAttached(l.Path, before), nil })
}

// until waits for so long that a device is detached.
func until(ctx context.Context, device string, detached func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, detachGrace)
	defer cancel()
	pause := time.NewTicker(detachPause)
	defer pause.Stop()
	for {
		done, err := detached()
		if done {
			return nil
		}
		if err != nil {
			return fmt.Errorf("detaching %s: %w", device, err)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("detaching %s: %w: another process has it open; it is detached when that closes it", device, unix.EBUSY)
		}
	}
}

// clear asks the kernel to detach the device, which it does, at the latest when it is closed, if no other process has
// it open. Before Linux 6.10 another process may attach it again at once; that attachment is not the one to detach.
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

// stillAttached says whether a device is attached to the same file as before, and not to another's by now.
func stillAttached(device string, before File) bool {
	if !attached(device) {
		return false
	}
	now, err := LoopFile(device)
	return err == nil && now == before || err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, fs.ErrNotExist)
}

// GrowLoop lets a device see that its image has grown.
func GrowLoop(device string) error {
	err := onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
	if err != nil {
		return fmt.Errorf("growing %s to the size of its image: %w", device, err)
	}
	return nil
}

// SyncDevice writes out what a block device and those beneath it hold in memory.
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
