package nodeops

import (
	"context"
	"errors"
	"fmt"

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
	treePair
	ctx   context.Context
	first hardLinks
}

func (c *treeCopy) run(dst, src string) (err error) {
	if c.treePair, err = openPair(src, dst); err != nil {
		return err
	}
	defer c.close()
	c.first.path = dst + ".links"
	defer func() { err = errors.Join(err, c.first.close(c.ctx)) }()
	return c.walk(c.ctx, c)
}

func (c *treeCopy) directory(to, from *node, name string) (*node, error) {
	if err := create(c.ctx, to, from, name); err != nil {
		return nil, fmt.Errorf("%s: %w", from.Name(), err)
	}
	return openNode(to.File, name)
}

func (c *treeCopy) enter(*node, string) error { return nil }

func (c *treeCopy) foreign(n *node, name string) error {
	if n.kind() != unix.S_IFDIR {
		return nil
	}
	return unix.Mkdirat(int(c.here().Fd()), name, 0o755)
}

// leave copies the metadata of a directory, after its content.
func (c *treeCopy) leave(from *node) error { return copyAttributes(c.here(), from, nil) }

func (c *treeCopy) leaf(from *node, name string) error {
	to := c.here()
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
	if err := copyAttributes(made, from, nil); err != nil {
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
