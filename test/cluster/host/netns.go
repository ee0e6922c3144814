package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// MakeNetNS makes a network namespace that stays until the file is unmounted. One that is there already is kept.
func MakeNetNS(file string) error {
	there, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(file))
	if err != nil || len(there) > 0 {
		return err
	}
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		return err
	}
	return unshared(func() error {
		return unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
	})
}

// unshared runs f in a new network namespace and comes back to the old one.
func unshared(f func() error) error {
	runtime.LockOSThread()
	before, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer unix.Close(before)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("make a network namespace: %w", err)
	}
	err = f()
	// A thread that cannot come back stays locked, so that nothing else ever runs on it.
	if back := unix.Setns(before, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the new network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// EnterNetNS moves the calling thread into the namespace; the caller has locked it.
func EnterNetNS(file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", file, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", file, err)
	}
	return nil
}

// RemoveNetNS releases the namespace; it ends with its last process.
func RemoveNetNS(file string) error {
	err := unix.Unmount(file, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", file, err)
	}
	return nil
}
