package nodeops

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SetGroup gives a whole tree to a group, which may then read and write all of it and execute what any user may
// execute; new files inherit the group. It does nothing if the root directory has the group already: that is changed
// last, so that an interrupted run is repeated. It follows no symlinks and enters no other file system.
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
		leave: change, // after its content, so that the root directory is last
		leaf:  func(n *node, _ string) error { return change(n) },
		live:  true,
	}
	if err := w.walk(ctx, top); err != nil {
		return fmt.Errorf("changing the group of %s to %d: %w", dir, gid, err)
	}
	return nil
}

// groupBits returns the permissions of the group for a file or directory with that mode.
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
	// Also set if unchanged: a change of owner clears set-user-id.
	if mode := n.Mode | groupBits(n.Mode); mode != n.Mode || int(n.Gid) != gid {
		if err := unix.Chmod(n.magic(), mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: n.Name(), Err: err}
		}
	}
	return nil
}
