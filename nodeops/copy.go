package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// copyChunk is the number of bytes that are copied between two checks of the context.
const copyChunk = 4 << 20

// CopyFile copies the content of src to the empty file dst. If the file system supports it, dst shares the blocks of
// src, which is atomic and takes the same time at any size; otherwise everything except holes is copied.
func CopyFile(ctx context.Context, dst, src *os.File) (reflinked bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if reflinked, err = CloneFile(dst, src); err == nil && !reflinked {
		err = CopySparse(ctx, dst, src)
	}
	return reflinked, err
}

// CloneFile makes dst share the blocks of src, unless their file system cannot do that.
func CloneFile(dst, src *os.File) (reflinked bool, err error) {
	err = uninterrupted(func() error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) })
	switch {
	case err == nil:
		return true, nil
	case cannotShare(err):
		return false, nil
	}
	return false, fmt.Errorf("cloning %s to %s: %w", src.Name(), dst.Name(), err)
}

// cannotShare recognizes the errors of FICLONE for files that must be copied. ETXTBSY means a swap file; EINVAL comes
// from btrfs if only one of the two has checksums.
func cannotShare(err error) bool {
	for _, e := range []unix.Errno{unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.EINVAL, unix.ETXTBSY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// CopySparse copies everything except holes and zeros of src to dst, which contains only zeros, and makes dst at least as
// long as src. It never shares blocks, as copy_file_range may: a preallocated dst keeps its own.
func CopySparse(ctx context.Context, dst, src *os.File) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := lengthen(dst, info.Size()); err != nil {
		return err
	}
	c := newContentSync(ctx, func(int64) {}, info.Size())
	c.lazy = true // the source may be frozen
	return eachData(src, info.Size(), func(from, to int64) error { return c.data(dst, src, from, to, 0) })
}

func lengthen(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return err
	}
	return f.Truncate(size)
}

// eachData calls visit with every range of f that is not a hole.
func eachData(f *os.File, size int64, visit func(from, to int64) error) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole up to the end
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for data in %s from %d: %w", f.Name(), at, err)
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("looking for holes in %s from %d: %w", f.Name(), from, err)
		}
		if err := visit(from, min(to, size)); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// Preallocate allocates blocks for all of f up to size. If that fails, f has its previous length and no blocks beyond
// it. A lack of space is ENOSPC, detected before any block is allocated.
func Preallocate(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkSpace(f, size); err != nil {
		return err
	}
	err = uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: its file system cannot preallocate space; use thin provisioning", err)
	}
	return errors.Join(fmt.Errorf("allocating %s for %s: %w", mebibytes(size), f.Name(), err), f.Truncate(info.Size()))
}

func checkSpace(f *os.File, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	need, free := size-st.Blocks*512, int64(fs.Bavail)*fs.Frsize
	if need > free {
		return fmt.Errorf("allocating %s for %s: %w: %s are needed, and the file system has %s", mebibytes(size), f.Name(), unix.ENOSPC, mebibytes(need), fmt.Sprint(free>>20, "Mi"))
	}
	return nil
}

// uninterrupted repeats a system call that returned EINTR: the Go runtime sends many signals.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
