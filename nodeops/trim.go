package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fiTrim is from linux/fs.h, for all architectures with the common numbering of ioctls.
const fiTrim = 0xC0185879

// trimRange is how much of a file system is trimmed at once: while it is, the file system cannot be unmounted, which waits for
// busyGrace.
const trimRange = 256 << 20

// Trim gives the free space of a mounted file system back to its device, but for extents below least bytes. It takes at most half
// of the time of the disk, and ends without an error when the mount goes.
func Trim(ctx context.Context, m *Mount, size, least int64) error {
	step := int64(trimRange)
	if m.FSType == "btrfs" {
		step = size // its ranges are of logical addresses, and all unallocated space is trimmed with each
	}
	for start := int64(0); start < size; start += step {
		began := time.Now()
		is, err := trimOnce(m, start, step, least)
		if err != nil || !is {
			return err
		}
		pause := time.NewTimer(time.Since(began))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// trimOnce trims a range, unless another file system is there now.
func trimOnce(m *Mount, start, length, least int64) (is bool, err error) {
	root, err := os.Open(m.Target)
	if err != nil {
		return false, nil // it is not mounted any more, or not readable, which others report
	}
	defer root.Close()
	if is, err := leadsTo(int(root.Fd()), "", m); err != nil || !is {
		return false, err
	}
	space := struct{ start, length, least uint64 }{uint64(start), uint64(length), uint64(least)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), fiTrim, uintptr(unsafe.Pointer(&space))); errno != 0 {
		if errors.Is(errno, unix.EOPNOTSUPP) || errors.Is(errno, unix.EINVAL) && start > 0 { // nothing to trim, or past the end
			return false, nil
		}
		return false, fmt.Errorf("trimming the file system at %s: %w", m.Target, errno)
	}
	return true, nil
}
