package nodeops

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// File identifies a file, regardless of its path.
type File struct{ device, inode uint64 }

// FileAt returns the file at a path. It does not follow a symlink.
func FileAt(path string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	return fileOf(info), nil
}

func fileOf(info os.FileInfo) File {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return File{}
	}
	return File{st.Dev, st.Ino}
}

// LoopFile returns the file of a device. It fails with ENXIO if the device is not attached.
func LoopFile(device string) (File, error) {
	f, err := openLoop(device, true)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return (&Loop{Path: device, device: f}).file()
}

func (l *Loop) file() (File, error) {
	status, err := l.status()
	if err != nil {
		return File{}, err
	}
	return attachedTo(status), nil
}

func attachedTo(status *unix.LoopInfo64) File { return File{status.Device, status.Inode} }

// statusOf returns the status of a device that is attached to this file. It fails with ENXIO if the device is not.
func (l *Loop) statusOf(image string) (*unix.LoopInfo64, error) {
	of, err := FileAt(image)
	if err != nil {
		return nil, err
	}
	status, err := l.status()
	if err == nil && attachedTo(status) != of {
		err = fmt.Errorf("%s is attached to another file than %s: %w", l.Path, image, unix.ENXIO)
	}
	return status, err
}

func (l *Loop) status() (*unix.LoopInfo64, error) {
	status, err := unix.IoctlLoopGetStatus64(int(l.device.Fd()))
	if err != nil {
		return nil, fmt.Errorf("determining the file of %s: %w", l.Path, err)
	}
	return status, nil
}
