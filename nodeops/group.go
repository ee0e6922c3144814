package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// SetGroup gives a whole tree to a group, which may then read and write all of it and execute what someone may;
// new files belong to it too. It changes nothing when the top directory is as it should be, which it makes so last,
// so that a pass that was cut short is repeated. It follows no links and enters no other file system.
func SetGroup(ctx context.Context, dir string, gid int) error {
	root, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	top, err := openNode(root, ".")
	if err != nil {
		return err
	}
	defer top.Close()
	if int(top.Gid) == gid && top.Mode&groupBits(top.Mode) == groupBits(top.Mode) {
		return nil
	}
	g := grouper{gid: gid, device: top.Dev}
	if err := g.change(ctx, top, 0); err != nil {
		return fmt.Errorf("giving %s to group %d: %w", dir, gid, err)
	}
	return nil
}

// groupBits is what the group needs of a file or directory of that mode.
func groupBits(mode uint32) uint32 {
	switch {
	case mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.S_ISGID | 0o070
	case mode&0o111 != 0:
		return 0o070
	}
	return 0o060
}

type grouper struct {
	gid    int
	device uint64
}

func (g *grouper) change(ctx context.Context, n *node, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.Dev != g.device {
		return nil
	}
	if n.kind() == unix.S_IFDIR {
		if err := g.enter(ctx, n, depth); err != nil {
			return err
		}
	}
	if int(n.Gid) != g.gid {
		if err := unix.Fchownat(int(n.Fd()), "", -1, g.gid, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chgrp", Path: n.Name(), Err: err}
		}
	}
	if n.kind() == unix.S_IFLNK {
		return nil
	}
	// Also where the bits are there: a change of owner takes set-user-id away.
	if mode := n.Mode | groupBits(n.Mode); mode != n.Mode || int(n.Gid) != g.gid {
		if err := unix.Chmod(n.magic(), mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: n.Name(), Err: err}
		}
	}
	return nil
}

func (g *grouper) enter(ctx context.Context, n *node, depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("%s lies deeper than %d directories", n.Name(), maxDepth)
	}
	dir, err := n.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	return eachName(dir, func(name string) error {
		child, err := openNode(dir, name)
		if errors.Is(err, fs.ErrNotExist) { // its user removed it
			return nil
		}
		if err != nil {
			return err
		}
		defer child.Close()
		return g.change(ctx, child, depth+1)
	})
}
