package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CopyTree copies the content of src, and the metadata of src itself, to the empty directory dst: modes, owners,
// extended attributes and so access control lists, times, hard links, symlinks, devices, pipes and sockets. Files share
// blocks or stay sparse, as with CopyFile. It follows no symlinks and enters no other file system, which becomes an
// empty directory. Attributes of chattr are not copied. src must not change during the copy; an error leaves dst
// incomplete. While files with several names are copied, a directory dst.links exists.
func CopyTree(ctx context.Context, dst, src string) error {
	c := &treeCopy{ctx: ctx}
	if err := c.run(dst, src); err != nil {
		return fmt.Errorf("copying %s to %s: %w", src, dst, err)
	}
	return nil
}

type treeCopy struct {
	ctx   context.Context
	into  openPath // the copies of the directories on the current path
	first hardLinks
}

func (c *treeCopy) run(dst, src string) (err error) {
	from, to, err := openPair(src, dst)
	if err != nil {
		return err
	}
	defer from.Close()
	defer to.Close()
	defer func() { c.into.close() }()
	c.first.path = dst + ".links"
	defer func() { err = errors.Join(err, c.first.close(c.ctx)) }()
	w := treeWalk{
		enter: besides(to, c.enter),
		leave: c.leave,
		leaf:  c.leaf,
		foreign: func(n *node, name string) error {
			if n.kind() != unix.S_IFDIR {
				return nil
			}
			return unix.Mkdirat(int(c.into.last().Fd()), name, 0o755)
		},
	}
	return w.walk(c.ctx, from)
}

func openPair(src, dst string) (from, to *node, err error) {
	if from, err = openTop(src); err != nil {
		return nil, nil, err
	}
	if to, err = openTop(dst); err != nil {
		from.Close()
		return nil, nil, err
	}
	return from, to, nil
}

// besides enters the directories of a source, but not the copy, which may lie in it.
func besides(to *node, enter func(top, from *node, name string) error) func(dir *node, name string) error {
	return func(dir *node, name string) error {
		if dir.Dev == to.Dev && dir.Ino == to.Ino {
			return fmt.Errorf("%s is the copy itself", dir.Name())
		}
		return enter(to, dir, name)
	}
}

func openTop(path string) (*node, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openNode(dir, ".")
}

// enter creates the copy of a directory; that of the root exists.
func (c *treeCopy) enter(top, from *node, name string) error {
	made := top
	if len(c.into) > 0 {
		to := c.into.last()
		if err := create(c.ctx, &to.node, from, name); err != nil {
			return fmt.Errorf("%s: %w", from.Name(), err)
		}
		n, err := openNode(to.File, name)
		if err != nil {
			return err
		}
		defer n.Close()
		made = n
	}
	dir, err := made.open()
	if err != nil {
		return err
	}
	c.into.enter(dir, made.Stat_t)
	return nil
}

// leave copies the metadata of a directory, after its content.
func (c *treeCopy) leave(from *node) error {
	if err := copyAttributes(&c.into.last().node, from, copyXattrs); err != nil || len(c.into) == 1 {
		return err
	}
	return c.into.leave()
}

func (c *treeCopy) leaf(from *node, name string) error {
	to := &c.into.last().node
	if linked, err := c.first.link(to, from, name); linked || err != nil {
		return err
	}
	if err := create(c.ctx, to, from, name); err != nil {
		return fmt.Errorf("%s: %w", from.Name(), err)
	}
	made, err := openNode(to.File, name)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := copyAttributes(made, from, copyXattrs); err != nil {
		return err
	}
	return c.first.note(to, from, name)
}

// create creates a node of the same kind and content, accessible only to root at first.
func create(ctx context.Context, to, from *node, name string) error {
	dir := int(to.Fd())
	switch from.kind() {
	case unix.S_IFDIR:
		return unix.Mkdirat(dir, name, 0o700)
	case unix.S_IFREG:
		return copyContent(ctx, to, from, name)
	case unix.S_IFLNK:
		target, err := readLink(from)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, dir, name)
	}
	return unix.Mknodat(dir, name, from.kind()|0o600, int(from.Rdev))
}

func copyContent(ctx context.Context, to, from *node, name string) error {
	src, err := from.open()
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openAt(to.File, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	_, err = CopyFile(ctx, dst, src)
	return err
}
