package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Trees are walked by descriptor, never by path, so that symlinks that a user creates during the walk cannot lead out
// of the tree. The number of open descriptors is limited. The depth is limited too, since the kernel keeps all parents
// of an open directory in memory.
const maxDepth = 1000

// ErrTooDeep means that a tree has more nested directories than a walk follows.
var ErrTooDeep = fmt.Errorf("it is deeper than %d directories", maxDepth)

// openLevels is the number of directories that a walk keeps open, the deepest ones. It reopens the others by "..".
const openLevels = 16

// node is an entry of a tree, opened with O_PATH.
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

// magic returns a path that leads to this node, even if it is a symlink, for calls that do not accept an O_PATH
// descriptor.
func (n *node) magic() string { return fmt.Sprintf("/proc/self/fd/%d", n.Fd()) }

// open opens a directory or regular file for reading with O_NOATIME.
func (n *node) open() (*os.File, error) {
	if n.kind() == unix.S_IFDIR {
		return openAt(n.File, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
	}
	fd, err := unix.Open(n.magic(), unix.O_RDONLY|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: n.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), n.Name()), nil
}

// treeWalk walks a tree. It follows no symlinks and enters no other file system.
type treeWalk struct {
	enter   func(dir *node, name string) error // before the content of a directory
	leave   func(dir *node) error              // after it
	leaf    func(n *node, name string) error   // for anything else
	foreign func(n *node, name string) error   // for a mount point; nil skips it
	live    bool                               // entries may vanish during the walk
}

// walk starts at a directory, whose name is "".
func (w *treeWalk) walk(ctx context.Context, top *node) error {
	var path openPath
	defer func() { path.close() }()
	if err := w.push(&path, top, ""); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := path.last()
		name, _, err := dir.entries.read(dir.File)
		switch {
		case errors.Is(err, io.EOF):
			if err := w.leave(&dir.node); err != nil || len(path) == 1 {
				return err
			}
			err = path.leave()
		case err == nil:
			err = w.entry(&path, name, top.Dev)
		}
		if err != nil {
			return err
		}
	}
}

func (w *treeWalk) entry(path *openPath, name string, device uint64) error {
	n, err := openNode(path.last().File, name)
	if w.live && errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer n.Close()
	switch {
	case n.Dev != device && w.foreign == nil:
		return nil
	case n.Dev != device:
		return w.foreign(n, name)
	case n.kind() != unix.S_IFDIR:
		return w.leaf(n, name)
	case len(*path) > maxDepth:
		return fmt.Errorf("%s: %w", n.Name(), ErrTooDeep)
	}
	return w.push(path, n, name)
}

func (w *treeWalk) push(path *openPath, n *node, name string) error {
	if err := w.enter(n, name); err != nil {
		return err
	}
	dir, err := n.open()
	if err != nil {
		return err
	}
	path.enter(dir, n.Stat_t)
	return nil
}

// openDir is a directory on the current path of a walk. It is open or parked.
type openDir struct {
	node
	entries dirNames
}

// openPath is the path from the root of a tree to the current directory of a walk.
type openPath []*openDir

func (p openPath) last() *openDir { return p[len(p)-1] }

// enter appends a subdirectory of the last one, and parks a directory far above it.
func (p *openPath) enter(dir *os.File, st unix.Stat_t) {
	*p = append(*p, &openDir{node: node{File: dir, Stat_t: st}})
	if far := len(*p) - 1 - openLevels; far >= 0 {
		above := (*p)[far]
		above.entries.park()
		above.Close()
		above.File = nil
	}
}

// leave returns to the parent directory. It fails if the last directory was moved elsewhere.
func (p *openPath) leave() error {
	dir := p.last()
	defer dir.Close()
	*p = (*p)[:len(*p)-1]
	above := p.last()
	if above.File != nil {
		return nil
	}
	f, err := openAt(dir.File, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Dev != above.Dev || st.Ino != above.Ino {
		f.Close()
		return fmt.Errorf("%s was moved while its tree was being walked: %w", dir.Name(), cmp.Or(err, error(unix.EBUSY)))
	}
	above.File = f
	return above.entries.resume(f)
}

func (p openPath) close() {
	for _, dir := range p {
		if dir.File != nil {
			dir.Close()
		}
	}
}
