package nodeops

import (
	"context"
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

// SetProject sets the quota project id of a directory and of everything below it on the same file system; new files
// inherit it. Existing symlinks, devices, pipes and sockets keep theirs: they cannot be opened for the ioctl, and use
// no space.
func SetProject(dir string, id uint32) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	top, err := openNode(f, ".")
	if err != nil {
		return err
	}
	defer top.Close()
	mark := func(n *node, flags uint32) error {
		f, err := n.open()
		if err != nil {
			return err
		}
		defer f.Close()
		return setProject(f, id, flags)
	}
	w := treeWalk{
		enter: func(n *node, _ string) error { return mark(n, projectInherit) }, // so that files created during the walk inherit the id
		leave: func(*node) error { return nil },
		leaf: func(n *node, _ string) error {
			if n.kind() != unix.S_IFREG {
				return nil
			}
			return mark(n, 0)
		},
		live: true,
	}
	return w.walk(context.Background(), top)
}

func setProject(f *os.File, id, flags uint32) error {
	x, err := readProject(f)
	if err != nil {
		return err
	}
	if x.Project == id && x.Flags&flags == flags {
		return nil
	}
	x.Project, x.Flags = id, x.Flags|flags
	if err := ioctl(f, setXattr, unsafe.Pointer(&x)); err != nil {
		return fmt.Errorf("setting the quota project of %s to %d: %w", f.Name(), id, err)
	}
	return nil
}

// disinherit clears the inheritance flag of a directory, so that files of other quota projects can be moved into it and
// keep theirs.
func disinherit(dir *os.File) error {
	x, err := readProject(dir)
	if err != nil {
		return err
	}
	x.Flags &^= projectInherit
	if err := ioctl(dir, setXattr, unsafe.Pointer(&x)); err != nil {
		return fmt.Errorf("removing the project inheritance from %s: %w", dir.Name(), err)
	}
	return nil
}

func readProject(f *os.File) (fsxattr, error) {
	var x fsxattr
	if err := ioctl(f, getXattr, unsafe.Pointer(&x)); err != nil {
		return x, fmt.Errorf("reading the quota project of %s: %w", f.Name(), err)
	}
	return x, nil
}

// ProjectOf returns the quota project id of a directory or regular file, and whether new files in it inherit the id.
func ProjectOf(path string) (id uint32, inherit bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	x, err := readProject(f)
	return x.Project, x.Flags&projectInherit != 0, err
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	return uninterrupted(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(argument)); errno != 0 {
			return errno
		}
		return nil
	})
}
