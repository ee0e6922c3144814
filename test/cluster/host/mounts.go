package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below reports whether path is dir or lies beneath it.
func Below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// UnmountBelow removes every mount at the directory and beneath it, the latest first. A mount in use is detached.
func UnmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		// A mount of a shared one goes with its twin.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

// ShareMounts makes mounts beneath the directory visible in containers that ask for it, and theirs here.
func ShareMounts(dir string) error {
	shared, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != dir || !strings.HasPrefix(m.Optional, "shared:"), false
	})
	if err != nil || len(shared) > 0 {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s onto itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts beneath %s: %w", dir, err)
	}
	return nil
}

// RemoveTree removes a directory for good, but never through a mount: what is mounted there is not ours to empty.
func RemoveTree(dir string) error {
	if err := UnmountBelow(dir); err != nil {
		return err
	}
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s is still mounted at %s: unmount it, then repeat", left[0].Source, left[0].Mountpoint)
	}
	return os.RemoveAll(dir)
}
