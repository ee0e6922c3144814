package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LoopsOf names the devices that are attached to this very file, whatever path it was attached under.
func LoopsOf(image string) ([]string, error) {
	info, err := os.Lstat(image)
	if err != nil {
		return nil, err
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, file := range attached {
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		if backs(info, image, device) {
			devices = append(devices, device)
		}
	}
	return devices, nil
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
	f, err := openLoop(device, true)
	if err != nil {
		return false
	}
	defer f.Close()
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	return err == nil && isFile(status, info)
}

// isFile says whether a device is attached to that very file.
func isFile(status *unix.LoopInfo64, info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && status.Device == st.Dev && status.Inode == st.Ino
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

// DetachLoop detaches a device and returns when it is free; a device that is not attached is free. When someone
// keeps it open it fails with EBUSY, and the device goes as soon as they close it.
func DetachLoop(ctx context.Context, device string) error {
	image, err := BackingFile(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detaching %s: %w", device, err)
	}
	err = onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detaching %s: %w", device, err)
	}
	ctx, cancel := context.WithTimeout(ctx, detachGrace)
	defer cancel()
	pause := time.NewTicker(detachPause)
	defer pause.Stop()
	for {
		if now, err := BackingFile(device); errors.Is(err, fs.ErrNotExist) || err == nil && undeleted(now) != undeleted(image) {
			return nil // what is attached now is another's
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("detaching %s from %s: %w: someone has it open; it goes when they close it", device, image, unix.EBUSY)
		}
	}
}

// undeleted is a name that the kernel reports as it was before the file was deleted.
func undeleted(name string) string { return strings.TrimSuffix(name, " (deleted)") }

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
