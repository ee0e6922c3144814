package nodeops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A copy marks its target before it writes to it, and takes the mark away when it has verified what it wrote. So a target with
// content and without a mark has what an application has written, or all of a copy: nothing may be copied over it, whatever the
// objects of a cluster say. Those may be older than the content.

// treeMark is an attribute of the root directory. It is not of the content.
const treeMark = "trusted.holdfast.copying"

// deviceMark is at the end of a device. Where that belongs to the content, it is overwritten last.
var deviceMark = fmt.Appendf(nil, "%-512s", "holdfast: a copy into this device has not ended")

// MarkTree marks a tree as the target of a copy. It returns ErrNotEmpty for one that has content and no mark.
func MarkTree(path string) error {
	if err := seesAllXattrs(); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	_, err = unix.Fgetxattr(int(dir.Fd()), treeMark, nil)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENODATA) {
		return fmt.Errorf("reading attribute %s of %s: %w", treeMark, path, err)
	}
	names, err := dir.Readdirnames(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if slices.ContainsFunc(names, func(name string) bool { return name != lostAndFound }) {
		return fmt.Errorf("%w: %s", ErrNotEmpty, path)
	}
	if err := unix.Fsetxattr(int(dir.Fd()), treeMark, []byte("1"), 0); err != nil {
		return fmt.Errorf("setting attribute %s of %s: %w", treeMark, path, err)
	}
	return dir.Sync()
}

// UnmarkTree takes the mark of MarkTree away.
func UnmarkTree(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Fremovexattr(int(dir.Fd()), treeMark); err != nil && !errors.Is(err, unix.ENODATA) {
		return fmt.Errorf("removing attribute %s of %s: %w", treeMark, path, err)
	}
	return dir.Sync()
}

// MarkDevice marks a block device as the target of a copy. It returns ErrNotEmpty for one that has no mark and a byte that is not
// zero, unless the caller has copied into it and marks it again.
func MarkDevice(ctx context.Context, path string, again bool) error {
	return atTheEnd(path, func(f *os.File, at int64, marked bool) error {
		if marked {
			return nil
		}
		for from, size := int64(0), at+int64(len(deviceMark)); !again && from < size; from += copyChunk {
			if err := cmp.Or(ctx.Err(), zeros(f, from, min(from+copyChunk, size))); err != nil {
				return err
			}
		}
		_, err := f.WriteAt(deviceMark, at)
		return err
	})
}

// UnmarkDevice takes the mark of MarkDevice away, unless that was where the copied bytes are.
func UnmarkDevice(path string, copied int64) error {
	return atTheEnd(path, func(f *os.File, at int64, marked bool) error {
		if !marked || at < copied {
			return nil
		}
		_, err := f.WriteAt(make([]byte, len(deviceMark)), at)
		return err
	})
}

func atTheEnd(path string, do func(f *os.File, at int64, marked bool) error) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := sizeOfDevice(f)
	if err != nil {
		return err
	}
	at, has := size-int64(len(deviceMark)), make([]byte, len(deviceMark))
	if err := readFull(f, has, at); err != nil {
		return err
	}
	return cmp.Or(do(f, at, bytes.Equal(has, deviceMark)), f.Sync())
}
