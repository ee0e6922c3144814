package nodeops

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/mkfs"
)

// FSContent is a file system that was made in memory, for a device that is not attached here, or to be copied at once.
type FSContent struct {
	file *os.File
	size int64
}

// mostLog limits the log of an xfs that is made in memory, which mkfs.xfs fills with zeros: by itself it makes one of up to 2 GiB.
const (
	mostLog    = 128 << 20
	largestLog = 256 << 30 // of a file system whose log mkfs.xfs makes no larger
)

// making bounds the number of mkfs that run in memory: more would only share the processors. On disks it is not bounded, since mkfs on
// one that hangs would stop it on the others.
var making = make(chan struct{}, 2*runtime.GOMAXPROCS(0))

// NewFSContent makes a file system of a size. Close frees its memory.
func NewFSContent(ctx context.Context, size int64, spec MkfsSpec) (content *FSContent, err error) {
	given, err := mkfs.Parse(spec.FSType, spec.Options)
	if err != nil {
		return nil, err
	}
	select {
	case making <- struct{}{}:
		defer func() { <-making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if spec.FSType == "xfs" && size > largestLog && !given.Has("-l") {
		spec.Options = append([]string{"-l", fmt.Sprintf("size=%d", mostLog)}, spec.Options...)
	}
	fd, err := unix.MemfdCreate("holdfast-format", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := file.Truncate(size); err != nil {
		return nil, err
	}
	if err := MakeFS(ctx, file.Name(), spec); err != nil {
		return nil, err
	}
	return &FSContent{file, size}, nil
}

// CopyTo writes all that is not zero to what is zero everywhere, in multiples of unit.
func (c *FSContent) CopyTo(ctx context.Context, to io.WriterAt, unit int64) error {
	part, zero := make([]byte, unit), make([]byte, unit)
	next := int64(0) // ranges of data may share a unit
	return eachData(c.file, c.size, func(begin, end int64) error {
		for at := max(next, begin/unit*unit); at < end; at += unit {
			n := min(unit, c.size-at)
			if err := cmp.Or(ctx.Err(), readFull(c.file, part[:n], at)); err != nil {
				return err
			}
			if !bytes.Equal(part[:n], zero[:n]) {
				if _, err := to.WriteAt(part[:n], at); err != nil {
					return err
				}
			}
			next = at + unit
		}
		return nil
	})
}

// ReadAt reads all of part.
func (c *FSContent) ReadAt(part []byte, at int64) (int, error) { return c.file.ReadAt(part, at) }

func (c *FSContent) Close() error { return c.file.Close() }
