package nodeops

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handleRequest is xfs_fsop_handlereq.
type handleRequest struct {
	file         uint32
	_            unsafe.Pointer // a path, for another call
	flags        uint32
	handle       unsafe.Pointer
	handleLength uint32
	result       unsafe.Pointer
	resultLength unsafe.Pointer
}

const (
	handleOfFile = 3<<30 | unsafe.Sizeof(handleRequest{})<<16 | 'X'<<8 | 106 // XFS_IOC_FD_TO_HANDLE
	openByHandle = 3<<30 | unsafe.Sizeof(handleRequest{})<<16 | 'X'<<8 | 107 // XFS_IOC_OPEN_BY_HANDLE
)

// withoutTimestamps opens a file of an xfs again, for a loop device: what is written there changes no timestamp of the file.
// Otherwise each sync of the file system in an image would write the log of the file system below, only for a new timestamp. xfs
// opens files by their handle in this way, for processes with CAP_SYS_ADMIN. In all other cases it returns nil.
func withoutTimestamps(f *os.File) *os.File {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type != unix.XFS_SUPER_MAGIC {
		return nil
	}
	var handle [64]byte // of which xfs uses 24
	length := uint32(len(handle))
	request := handleRequest{file: uint32(f.Fd()), result: unsafe.Pointer(&handle), resultLength: unsafe.Pointer(&length)} //nolint:gosec // loopConfig bounds it
	if ioctl(f, handleOfFile, unsafe.Pointer(&request)) != nil {
		return nil
	}
	dir, err := os.Open(filepath.Dir(f.Name())) // xfs opens beneath a directory
	if err != nil {
		return nil
	}
	defer dir.Close()
	request = handleRequest{file: request.file, flags: unix.O_RDWR, handle: unsafe.Pointer(&handle), handleLength: length}
	again := openHandle(dir, f.Name(), &request)
	if again == nil {
		return nil
	}
	if !isSame(f, again) { // another file system may have been mounted at the directory
		again.Close()
		return nil
	}
	return again
}

func openHandle(dir *os.File, name string, request *handleRequest) *os.File {
	syscall.ForkLock.RLock() // xfs does not know O_CLOEXEC here
	defer syscall.ForkLock.RUnlock()
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), openByHandle, uintptr(unsafe.Pointer(request)))
	if errno != 0 {
		return nil
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(fd, name)
}

func isSame(a, b *os.File) bool {
	is, err := a.Stat()
	other, errOther := b.Stat()
	return err == nil && errOther == nil && os.SameFile(is, other)
}

// stamp sets the modification time of a file to now.
func stamp(f *os.File) error {
	now := unix.NsecToTimespec(time.Now().UnixNano())
	if err := unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, now}, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "setting the time of", Path: f.Name(), Err: err}
	}
	return nil
}
