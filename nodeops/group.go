package nodeops

import (
	"context"
	"fmt"
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
	change := func(n *node) error { return changeGroup(n, gid) }
	w := treeWalk{
		enter: func(*node, string) error { return nil },
		leave: change, // when all in it is done, so that the top directory is the last
		leaf:  func(n *node, _ string) error { return change(n) },
		live:  true,
	}
	if err := w.walk(ctx, top); err != nil {
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

func changeGroup(n *node, gid int) error {
	if int(n.Gid) != gid {
		if err := unix.Fchownat(int(n.Fd()), "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chgrp", Path: n.Name(), Err: err}
		}
	}
	if n.kind() == unix.S_IFLNK {
		return nil
	}
	// Also where the bits are there: a change of owner takes set-user-id away.
	if mode := n.Mode | groupBits(n.Mode); mode != n.Mode || int(n.Gid) != gid {
		if err := unix.Chmod(n.magic(), mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: n.Name(), Err: err}
		}
	}
	return nil
}
