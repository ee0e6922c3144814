package nodeops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrTooSmall means that a copy has no room for its source.
var ErrTooSmall = errors.New("the target is too small")

// CopyDevice makes the beginning of the block device dst equal to all of src. Blocks that are equal already are not
// written: a call that was interrupted is continued by the next, and a thin dst stays thin where src has zeros. It returns
// the number of bytes that it wrote.
func CopyDevice(ctx context.Context, dst, src string, done func(bytes int64)) (written int64, err error) {
	from, to, size, err := openDevices(dst, src)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	defer func() { err = errors.Join(err, to.Close()) }()
	c := newContentSync(ctx, done, copyChunk)
	last := max(0, size-patchBlock)
	err = c.data(to, from, 0, last, size)
	if err == nil {
		err = to.Sync() // the mark may be in the last block
	}
	if err == nil {
		err = c.data(to, from, last, size, size)
	}
	if err != nil {
		return c.written, fmt.Errorf("copying %s to %s: %w", src, dst, err)
	}
	return c.written, nil
}

// DeviceSize returns the size of a block device in bytes.
func DeviceSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return sizeOfDevice(f)
}

func sizeOfDevice(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("determining the size of %s: %w", f.Name(), err)
	}
	return size, nil
}

// openDevices opens dst for this process alone: it fails while it is mounted.
func openDevices(dst, src string) (from, to *os.File, size int64, err error) {
	if from, err = os.Open(src); err != nil {
		return nil, nil, 0, err
	}
	if to, err = os.OpenFile(dst, os.O_RDWR|unix.O_EXCL, 0); err != nil {
		return nil, nil, 0, errors.Join(err, from.Close())
	}
	size, err = pairSize(from, to)
	if err != nil {
		return nil, nil, 0, errors.Join(err, from.Close(), to.Close())
	}
	return from, to, size, nil
}

func pairSize(from, to *os.File) (int64, error) {
	size, err := sizeOfDevice(from)
	if err != nil {
		return 0, err
	}
	room, err := sizeOfDevice(to)
	if err != nil {
		return 0, err
	}
	if room < size {
		return 0, fmt.Errorf("%w: %s has %d bytes and %s %d; %d bytes are missing", ErrTooSmall, from.Name(), size, to.Name(), room, size-room)
	}
	return size, nil
}

// CompareDevices reads all of the block device src, and as much of dst, and returns the content of src if they are equal,
// and otherwise ErrDiffers. dst is read from its disk, as CompareTrees does. The digest is the SHA-256 of the bytes of
// src.
func CompareDevices(ctx context.Context, dst, src string, done func(bytes int64)) (Content, error) {
	from, to, size, err := openDevices(dst, src)
	if err != nil {
		return Content{}, err
	}
	defer from.Close()
	defer to.Close()
	if err := to.Sync(); err != nil {
		return Content{}, fmt.Errorf("writing everything back to %s: %w", dst, err)
	}
	sides, parts := [2]*os.File{from, to}, [2][]byte{make([]byte, copyChunk), make([]byte, copyChunk)}
	var differs []int64 // where chunks begin that do
	sum := sha256.New()
	for _, f := range sides {
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	for at := int64(0); at < size; at += copyChunk {
		if err := ctx.Err(); err != nil {
			return Content{}, fmt.Errorf("comparing %s with its copy %s at byte %d: %w", src, dst, at, err)
		}
		length := min(size-at, copyChunk)
		err := both(func(i int) error {
			err := readFull(sides[i], parts[i][:length], at)
			_ = unix.Fadvise(int(sides[i].Fd()), at, length, unix.FADV_DONTNEED)
			return err
		})
		if err != nil {
			return Content{}, err
		}
		sum.Write(parts[0][:length])
		if len(differs) < mostDifferences && !bytes.Equal(parts[0][:length], parts[1][:length]) {
			differs = append(differs, at)
		}
		done(length)
	}
	if len(differs) > 0 {
		return Content{}, fmt.Errorf("%w: %s and %s in the %d bytes from each of %v", ErrDiffers, src, dst, copyChunk, differs)
	}
	return Content{Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
