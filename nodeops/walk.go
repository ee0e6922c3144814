package nodeops

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Trees are walked by descriptors, never by path, so that nothing that a tree's user does meanwhile with links leads
// out of it. Each level holds descriptors; without a bound one deep tree could take them all from the process.
const maxDepth = 1000

// node is an entry of a tree, held without following, reading or opening it in the usual sense.
type node struct {
	*os.File // O_PATH
	unix.Stat_t
}

func openNode(parent *os.File, name string) (*node, error) {
	f, err := openAt(parent, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	n := &node{File: f}
	if err := unix.Fstat(int(f.Fd()), &n.Stat_t); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return n, nil
}

func openAt(parent *os.File, name string, flags int, mode uint32) (*os.File, error) {
	path := shortPath(parent, name)
	var fd int
	err := uninterrupted(func() (err error) {
		fd, err = unix.Openat(int(parent.Fd()), name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (n *node) kind() uint32 { return n.Mode & unix.S_IFMT }

// magic is a path that leads to this very node, also where it is a link, for calls that take no descriptor of its kind.
func (n *node) magic() string { return fmt.Sprintf("/proc/self/fd/%d", n.Fd()) }

// open opens a directory or regular file for reading; its access time stays.
func (n *node) open() (*os.File, error) {
	if n.kind() == unix.S_IFDIR {
		f, err := openAt(n.File, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	fd, err := unix.Open(n.magic(), unix.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: n.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), n.Name()), nil
}

// eachName calls visit with the names in a directory, of which it holds few at a time.
func eachName(dir *os.File, visit func(name string) error) error {
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
