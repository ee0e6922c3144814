package nodeops

import (
	"errors"
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

// SetProject gives a directory and all directories and files beneath it on the same file system a quota project id,
// which everything made there later inherits. Links, devices, pipes and sockets that are there already keep what they
// have: they cannot be opened for it, and take no space.
func SetProject(dir string, id uint32) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return setProjects(f, st.Dev, id, 0)
}

// setProjects marks a directory before what is in it, so that nothing made meanwhile is missed.
func setProjects(dir *os.File, device uint64, id uint32, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s lies more than %d directories deep", dir.Name(), maxDepth)
	}
	if err := setProject(dir, id, projectInherit); err != nil {
		return err
	}
	return eachName(dir, func(name string) error {
		err := setEntry(dir, name, device, id, depth)
		if errors.Is(err, unix.ENOENT) { // removed meanwhile
			return nil
		}
		return err
	})
}

func setEntry(dir *os.File, name string, device uint64, id uint32, depth int) error {
	n, err := openNode(dir, name)
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Dev != device || n.kind() != unix.S_IFDIR && n.kind() != unix.S_IFREG {
		return nil
	}
	f, err := n.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if n.kind() == unix.S_IFDIR {
		return setProjects(f, device, id, depth+1)
	}
	return setProject(f, id, 0)
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
		return fmt.Errorf("giving %s the quota project %d: %w", f.Name(), id, err)
	}
	return nil
}

// disinherit lets a directory take files of any quota project, which are then not given its own.
func disinherit(dir *os.File) error {
	x, err := readProject(dir)
	if err != nil {
		return err
	}
	x.Flags &^= projectInherit
	if err := ioctl(dir, setXattr, unsafe.Pointer(&x)); err != nil {
		return fmt.Errorf("taking the inheritance of its quota project from %s: %w", dir.Name(), err)
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

// ProjectOf returns the quota project id of a directory or regular file, and whether what is made in it inherits it.
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
