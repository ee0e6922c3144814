package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// FormatOnce makes a file system on an attached device that has none, and returns whether it did. It does not touch a
// device with content: a file system of any type is left to its mount, anything else is ErrNotEmpty. If this process is
// killed, the device is either formatted or proven empty. An unfinished xfs is recognized by spec.UUID. The other types
// are made in memory, where they need little space, and their first MiB, without which they are not recognized, is
// written last and at once.
func FormatOnce(ctx context.Context, device string, spec MkfsSpec) (made bool, err error) {
	if err := CheckMkfs(spec); err != nil {
		return false, err
	}
	found, err := signature(ctx, device)
	if err != nil {
		return false, err
	}
	if found == "xfs" && spec.UUID != "" {
		head, err := ReadXFSHead(device)
		if err != nil {
			return false, err
		}
		if head != nil && head.Unfinished && head.UUID == spec.UUID {
			if err := EraseUnfinishedXFS(device, spec.UUID); err != nil {
				return false, err
			}
			found = ""
		}
	}
	if found != "" {
		return false, nil
	}
	if spec.FSType == "xfs" {
		return true, MakeFS(ctx, device, spec)
	}
	if err := ProvenEmpty(ctx, device); err != nil {
		return false, fmt.Errorf("making %s: %w", spec.FSType, err)
	}
	return true, formatByCopy(ctx, device, spec)
}

// formatByCopy makes the file system in memory and copies the parts that are not zero.
func formatByCopy(ctx context.Context, device string, spec MkfsSpec) error {
	to, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL|unix.O_DIRECT, 0)
	if err != nil {
		return fmt.Errorf("formatting %s: %w", device, err)
	}
	defer to.Close()
	size, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("holdfast-format", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	from := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	defer from.Close()
	if err := from.Truncate(size); err != nil {
		return err
	}
	if err := MakeFS(ctx, from.Name(), spec); err != nil {
		return err
	}
	if err := copyHeadLast(ctx, to, from, size); err != nil {
		return fmt.Errorf("formatting %s: %w", device, err)
	}
	return nil
}

// copyHeadLast copies in blocks of one MiB, which RBD writes atomically.
func copyHeadLast(ctx context.Context, to, from *os.File, size int64) error {
	block, err := unix.Mmap(-1, 0, edge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // page-aligned
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(block) }()
	put := func(at int64) error {
		part := block[:min(edge, size-at)]
		if _, err := io.ReadFull(io.NewSectionReader(from, at, int64(len(part))), part); err != nil {
			return err
		}
		_, err := to.WriteAt(part, at)
		return err
	}
	next := int64(edge)
	err = eachData(from, size, func(begin, end int64) error {
		for at := max(next, begin/edge*edge); at < end; at += edge {
			if err := errors.Join(ctx.Err(), put(at)); err != nil {
				return err
			}
			next = at + edge
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := to.Sync(); err != nil {
		return err
	}
	if err := put(0); err != nil {
		return err
	}
	return to.Sync()
}
