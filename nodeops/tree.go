package nodeops

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CopyTree copies what is in src, and what src itself is like, into the empty directory dst: modes, owners, extended
// attributes and so access control lists, times, hard links, links, devices, pipes and sockets. Files share blocks
// or stay sparse as CopyFile does it. It follows no links and enters no other file system, which becomes an empty
// directory. Attributes of chattr are not copied. src must be quiet; what fails leaves dst incomplete.
func CopyTree(ctx context.Context, dst, src string) error {
	c := &treeCopy{links: map[uint64]link{}}
	if err := c.run(ctx, dst, src); err != nil {
		return fmt.Errorf("copying %s to %s: %w", src, dst, err)
	}
	return nil
}

type treeCopy struct {
	device uint64 // of the source
	root   *node  // of the copy
	links  map[uint64]link
}

// link is the first copy of a file of several names, by inode until all its names are made.
type link struct {
	path string // below the root of the copy
	left int
}

func (c *treeCopy) run(ctx context.Context, dst, src string) error {
	from, err := openTop(src)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openTop(dst)
	if err != nil {
		return err
	}
	defer to.Close()
	c.device, c.root = from.Dev, to
	if err := c.entries(ctx, to, from, "", 0); err != nil {
		return err
	}
	return copyAttributes(to, from)
}

func openTop(path string) (*node, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openNode(dir, ".")
}

// entries copies what is in a directory, but not what it is like.
func (c *treeCopy) entries(ctx context.Context, to, from *node, path string, depth int) error {
	switch {
	case depth == maxDepth:
		return fmt.Errorf("%s lies deeper than %d directories", from.Name(), maxDepth)
	case from.Dev == c.root.Dev && from.Ino == c.root.Ino:
		return fmt.Errorf("%s is the copy itself", from.Name())
	}
	src, err := from.open()
	if err != nil {
		return err
	}
	defer src.Close()
	return eachName(src, func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := openNode(src, name)
		if err != nil {
			return err
		}
		defer n.Close()
		return c.entry(ctx, to, n, name, filepath.Join(path, name), depth)
	})
}

// entry copies one node to a name in the directory to.
func (c *treeCopy) entry(ctx context.Context, to, from *node, name, path string, depth int) error {
	if from.Dev != c.device {
		if from.kind() != unix.S_IFDIR {
			return nil
		}
		return unix.Mkdirat(int(to.Fd()), name, 0o755)
	}
	linked, err := c.linked(to, from, name, path)
	if linked || err != nil {
		return err
	}
	if err := create(ctx, to, from, name); err != nil {
		return fmt.Errorf("%s: %w", from.Name(), err)
	}
	made, err := openNode(to.File, name)
	if err != nil {
		return err
	}
	defer made.Close()
	if from.kind() == unix.S_IFDIR {
		if err := c.entries(ctx, made, from, path, depth+1); err != nil {
			return err
		}
	}
	return copyAttributes(made, from)
}

// linked gives another name to a file that was copied under its first one.
func (c *treeCopy) linked(to, from *node, name, path string) (bool, error) {
	if from.kind() == unix.S_IFDIR || from.Nlink < 2 {
		return false, nil
	}
	first, again := c.links[from.Ino]
	if !again {
		c.links[from.Ino] = link{path: path, left: int(from.Nlink) - 1}
		return false, nil
	}
	if first.left--; first.left == 0 {
		delete(c.links, from.Ino)
	} else {
		c.links[from.Ino] = first
	}
	if err := unix.Linkat(int(c.root.Fd()), first.path, int(to.Fd()), name, 0); err != nil {
		return false, fmt.Errorf("linking %s to %s: %w", path, first.path, err)
	}
	return true, nil
}

// create makes a new node of the same kind and content, for nobody but root yet.
func create(ctx context.Context, to, from *node, name string) error {
	dir := int(to.Fd())
	switch from.kind() {
	case unix.S_IFDIR:
		return unix.Mkdirat(dir, name, 0o700)
	case unix.S_IFREG:
		return copyContent(ctx, to, from, name)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(from.Fd()), "", target)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(target[:n]), dir, name)
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
