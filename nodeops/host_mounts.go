package nodeops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Show mounts at a directory what the host has mounted there, unless this process sees it: a container sees only what
// was mounted when it started. It returns whether it mounted anything.
func (h Host) Show(dir string) (shown bool, err error) {
	if h.Proc == "" {
		return false, nil
	}
	v, err := h.view(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil || !v.hidden():
		return false, err
	}
	tree, err := h.openTree(v.place)
	if err != nil {
		return false, fmt.Errorf("the host has %s mounted at %s, which could not be opened: %w", v.over.Source, v.over.Target, err)
	}
	defer unix.Close(tree)
	if top, err := MountAt(dir); err == nil && top != nil && DeviceGone(top.Device) {
		_ = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // detached lazily: users of the lost disk keep it
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return false, fmt.Errorf("mounting what the host has at %s: %w", v.place, os.NewSyscallError("move_mount", err))
	}
	return true, nil
}

// openTree opens a detached copy of a mount of the host. It uses a thread that ends afterwards: a thread that has
// entered another mount namespace cannot be reused.
func (h Host) openTree(path string) (fd int, err error) {
	var thread errgroup.Group
	thread.Go(func() (err error) {
		runtime.LockOSThread()
		fd, err = inMountsOf(filepath.Join(h.Proc, "ns/mnt"), path)
		return err
	})
	err = thread.Wait()
	return fd, err
}

func inMountsOf(namespace, path string) (int, error) {
	ns, err := os.Open(namespace)
	if err != nil {
		return -1, err
	}
	defer ns.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return -1, os.NewSyscallError("setns", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("open_tree", err)
	}
	return fd, nil
}
