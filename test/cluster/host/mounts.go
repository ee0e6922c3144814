package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Target, FSType, Source string
	Root                   string // what of the file system is mounted
	Shared                 bool
}

// Mounts returns all mounts that this process sees, in the order in which they were made.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data))
}

func parseMounts(info string) ([]Mount, error) {
	var mounts []Mount
	for line := range strings.Lines(info) {
		// 36 35 98:0 /root /target options shared:1 - ext4 /dev/sda options
		before, after, ok := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 6 || len(tail) < 2 {
			return nil, fmt.Errorf("mountinfo has an unknown line: %q", line)
		}
		shared := slices.ContainsFunc(head[6:], func(s string) bool { return strings.HasPrefix(s, "shared:") })
		mounts = append(mounts, Mount{Target: unescape(head[4]), FSType: tail[0], Source: unescape(tail[1]), Root: unescape(head[3]), Shared: shared})
	}
	return mounts, nil
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// Below reports whether path is dir or lies beneath it.
func Below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// UnmountBelow removes every mount at the directory and beneath it, the latest first. A mount in use is detached.
func UnmountBelow(dir string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if !Below(m.Target, dir) {
			continue
		}
		err := unix.Unmount(m.Target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(m.Target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		// A mount of a shared one goes with its twin.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Target, err))
		}
	}
	return errors.Join(errs...)
}

// ShareMounts makes mounts beneath the directory visible in containers that ask for it, and theirs here.
func ShareMounts(dir string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(mounts, func(m Mount) bool { return m.Target == dir && m.Shared }) {
		return nil
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
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if Below(m.Target, dir) {
			return fmt.Errorf("%s is still mounted at %s: unmount it, then repeat", m.Source, m.Target)
		}
	}
	return os.RemoveAll(dir)
}
