package nodeops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotEmpty means that a file or device has data, or cannot be proven to have none.
var ErrNotEmpty = errors.New("not proven empty")

const (
	// mostZeros limits how many bytes are read of a file that has data, which may be only zeros.
	mostZeros = 64 << 20
	// edge is the number of bytes that are read at both ends of a block device.
	edge = 1 << 20
)

// ProvenEmpty returns nil if formatting destroys nothing, and otherwise an ErrNotEmpty that says what was found.
//
// A regular file is empty if it has only holes and unwritten extents, or if the rest is at most 64 MiB of zeros. A
// block device is empty if it is not in use, blkid finds no signature, and its first and last MiB are zero.
func ProvenEmpty(ctx context.Context, path string) error {
	_, err := proveEmpty(ctx, path)
	return err
}

// proveEmpty also returns whether every byte is known to be zero.
func proveEmpty(ctx context.Context, path string) (zeroed bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	switch info.Mode().Type() {
	case 0:
		return true, emptyFile(ctx, path, info.Size())
	case os.ModeDevice:
		return false, emptyDevice(ctx, path)
	}
	return false, fmt.Errorf("%w: %s is a %s, neither a file nor a block device", ErrNotEmpty, path, info.Mode().Type())
}

func emptyFile(ctx context.Context, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	left := int64(mostZeros)
	return eachData(f, size, func(from, to int64) error {
		if to-from > left {
			return fmt.Errorf("%w: %s has more than %d bytes of data, too many to look for zeros", ErrNotEmpty, path, int64(mostZeros))
		}
		left -= to - from
		if err := ctx.Err(); err != nil {
			return err
		}
		return zeros(f, from, to)
	})
}

// emptyDevice opens the device with O_EXCL, which fails while it is mounted or part of another device.
func emptyDevice(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %s is in use", ErrNotEmpty, path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := sizeOfDevice(f)
	if err != nil {
		return err
	}
	found, err := signature(ctx, path)
	if err != nil {
		return err
	}
	if found != "" {
		return fmt.Errorf("%w: %s holds %s", ErrNotEmpty, path, found)
	}
	if err := zeros(f, 0, min(edge, size)); err != nil {
		return err
	}
	return zeros(f, max(0, size-edge), size)
}

// signature returns what blkid recognizes, or "".
func signature(ctx context.Context, path string) (string, error) {
	const nothing, ambivalent = 2, 8
	out, err := run(ctx, "blkid", "-p", "-o", "export", path)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return describe(out), nil
	case errors.As(err, &exit) && exit.ExitCode() == nothing:
		return "", nil
	case errors.As(err, &exit) && exit.ExitCode() == ambivalent:
		return "signatures of several kinds", nil
	}
	return "", err
}

func describe(export string) string {
	found := "an unknown signature"
	for line := range strings.Lines(export) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "TYPE" {
			return value
		}
		if key == "PTTYPE" {
			found = "a partition table (" + value + ")"
		}
	}
	return found
}

func zeros(f *os.File, from, to int64) error {
	block := make([]byte, min(to-from, edge))
	for from < to {
		part := block[:min(to-from, int64(len(block)))]
		if err := readFull(f, part, from); err != nil {
			return err
		}
		if !bytes.Equal(part, zeroChunk[:len(part)]) {
			return fmt.Errorf("%w: %s has data at or after byte %d", ErrNotEmpty, f.Name(), from)
		}
		from += int64(len(part))
	}
	return nil
}
