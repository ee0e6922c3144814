package nodeops

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	Flags, ExtentSize, Extents, Project, CowExtentSize uint32
	_                                                  [8]byte
}

const (
	getXattr       = 0x801C581F // FS_IOC_FSGETXATTR
	setXattr       = 0x401C5820 // FS_IOC_FSSETXATTR
	projectInherit = 1 << 9     // FS_XFLAG_PROJINHERIT
)

// SetProject gives an empty directory a quota project id that everything made in it inherits.
func SetProject(dir string, id uint32) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var x fsxattr
	if err := ioctl(f, getXattr, unsafe.Pointer(&x)); err != nil {
		return fmt.Errorf("reading the quota project of %s: %w", dir, err)
	}
	x.Project, x.Flags = id, x.Flags|projectInherit
	if err := ioctl(f, setXattr, unsafe.Pointer(&x)); err != nil {
		return fmt.Errorf("giving %s the quota project %d: %w", dir, id, err)
	}
	return nil
}

// ProjectOf returns a directory's quota project id, and whether what is made in it inherits it.
func ProjectOf(dir string) (id uint32, inherit bool, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	var x fsxattr
	if err := ioctl(f, getXattr, unsafe.Pointer(&x)); err != nil {
		return 0, false, fmt.Errorf("reading the quota project of %s: %w", dir, err)
	}
	return x.Project, x.Flags&projectInherit != 0, nil
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	return uninterrupted(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(argument)); errno != 0 {
			return errno
		}
		return nil
	})
}
