package nodeops

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// File identifies a file to the kernel, regardless of its path.
type File struct{ device, inode uint64 }

// FileAt is the file at a path; a link is not followed.
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

// LoopFile is the file that a device is attached to. It fails with ENXIO when that is none.
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

func (l *Loop) status() (*unix.LoopInfo64, error) {
	status, err := unix.IoctlLoopGetStatus64(int(l.device.Fd()))
	if err != nil {
		return nil, fmt.Errorf("asking what %s is attached to: %w", l.Path, err)
	}
	return status, nil
}
