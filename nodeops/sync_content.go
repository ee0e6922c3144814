package nodeops

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// patchBlock is the unit in which content is compared with what the target has, and written if it differs.
const patchBlock = 64 << 10

// contentSync writes the content of files and devices to others, in little memory and little page cache.
type contentSync struct {
	ctx            context.Context
	done           func(bytes int64)
	written        int64
	source, target []byte     // of at most copyChunk bytes
	dirty          span       // what is being written back
	lazy           bool       // the kernel writes back when it likes
	limit          *readLimit // of a tree
}

type span struct{ from, length int64 }

// zeroChunk is what a hole has.
var zeroChunk [copyChunk]byte

// newContentSync returns one for files of at most a size.
func newContentSync(ctx context.Context, done func(int64), size int64) *contentSync {
	return &contentSync{ctx: ctx, done: done, source: make([]byte, min(copyChunk, size))}
}

// file makes the content of dst that of src, with the same holes. Where dst has the bytes already, they are not written
// again: a copy that was interrupted continues.
func (c *contentSync) file(dst, src *os.File, size int64) error {
	before, err := dst.Stat()
	if err != nil {
		return err
	}
	if before.Size() != size {
		if err := dst.Truncate(size); err != nil {
			return err
		}
	}
	at, had := int64(0), min(before.Size(), size)
	c.dirty = span{}
	err = eachData(src, size, func(from, to int64) error {
		if err := punch(dst, at, min(from, had)); err != nil {
			return err
		}
		at = to
		return c.data(dst, src, from, to, had)
	})
	if err != nil {
		return err
	}
	return punch(dst, at, had)
}

// punch makes a hole.
func punch(f *os.File, from, to int64) error {
	if from >= to {
		return nil
	}
	err := uninterrupted(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	})
	if err != nil {
		return &os.PathError{Op: "making a hole in", Path: f.Name(), Err: err}
	}
	return nil
}

// data copies a range, of which dst may have the part before had.
func (c *contentSync) data(dst, src *os.File, from, to, had int64) error {
	for from < to {
		if err := c.ctx.Err(); err != nil {
			return fmt.Errorf("copying %s at byte %d: %w", src.Name(), from, err)
		}
		length := min(to-from, int64(len(c.source)))
		if err := c.limit.add(src, length); err != nil {
			return err
		}
		part := c.source[:length]
		if err := readFull(src, part, from); err != nil {
			return err
		}
		has := zeroChunk[:length]
		if from < had {
			if c.target == nil {
				c.target = make([]byte, len(c.source))
			}
			length = min(length, had-from) // the rest comes with the next chunk
			part, has = part[:length], c.target[:length]
			if err := readFull(dst, has, from); err != nil {
				return err
			}
		}
		if err := c.patch(dst, part, has, from); err != nil {
			return err
		}
		_ = unix.Fadvise(int(src.Fd()), from, length, unix.FADV_DONTNEED)
		if err := c.writeBack(dst, span{from, length}); err != nil {
			return err
		}
		c.done(length)
		from += length
	}
	return nil
}

// patch writes the blocks that differ from what dst has. Zeros where dst has a hole are not written: some file systems
// report no holes.
func (c *contentSync) patch(dst *os.File, part, has []byte, at int64) error {
	for from := 0; from < len(part); {
		to := from
		for to < len(part) && !bytes.Equal(part[to:min(to+patchBlock, len(part))], has[to:min(to+patchBlock, len(part))]) {
			to = min(to+patchBlock, len(part))
		}
		if to > from {
			if err := c.write(dst, part[from:to], at+int64(from)); err != nil {
				return err
			}
		}
		from = to + patchBlock // the block at to is equal
	}
	return nil
}

func (c *contentSync) write(dst *os.File, part []byte, at int64) error {
	n, err := dst.WriteAt(part, at)
	c.written += int64(n)
	return err
}

// writeBack starts to write a chunk back, waits for the one before, and drops it from the page cache: the memory of a
// container includes that.
func (c *contentSync) writeBack(dst *os.File, now span) error {
	if c.lazy || now.length < copyChunk { // the end, or a small file; there may be thousands of them in one chunk
		return nil
	}
	fd := int(dst.Fd())
	if err := unix.SyncFileRange(fd, now.from, now.length, unix.SYNC_FILE_RANGE_WRITE); err != nil {
		return fmt.Errorf("writing %s: %w", dst.Name(), err)
	}
	if last := c.dirty; last.length > 0 {
		const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if err := unix.SyncFileRange(fd, last.from, last.length, wait); err != nil {
			return fmt.Errorf("writing %s: %w", dst.Name(), err)
		}
		_ = unix.Fadvise(fd, last.from, last.length, unix.FADV_DONTNEED)
	}
	c.dirty = now
	return nil
}

func readFull(f *os.File, b []byte, at int64) error {
	if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(len(b))), b); err != nil {
		return fmt.Errorf("reading %s at byte %d: %w", f.Name(), at, err)
	}
	return nil
}
