package nodeops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// digestBlock is the unit of a digest of a file: blocks of zeros are left out, whether they are holes or not.
	digestBlock = 64 << 10
	// compareBuffer is how much is read at once, of each side.
	compareBuffer = 1 << 20
)

type digest [sha256.Size]byte

// digestOf is the digest of some words. Each has its length before it.
func digestOf(words ...string) (d digest) {
	h := sha256.New()
	for _, word := range words {
		fmt.Fprintf(h, "%d:%s", len(word), word)
	}
	h.Sum(d[:0])
	return d
}

// both does something for the source and the target at once.
func both(do func(side int) error) error {
	var g errgroup.Group
	for i := range 2 {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// blockEnd is the end of the block of a file that a range before to ends in. The sum of to and a block may exceed an int64.
func blockEnd(to, size int64) int64 {
	if rest := to % digestBlock; rest > 0 {
		return to + min(size-to, digestBlock-rest)
	}
	return to
}

// digestContent is the SHA-256 of all blocks of a file that are not only zeros, each after its position: the holes of a
// file differ from file system to file system, and a file may be exabytes of them. The page cache is dropped before a
// block is read.
func digestContent(ctx context.Context, f *os.File, size int64, buffer []byte, limit *readLimit, done func(bytes int64)) (d digest, err error) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	h, next := sha256.New(), int64(0) // next is where the digest continues
	err = eachData(f, size, func(from, to int64) error {
		from = max(next, from/digestBlock*digestBlock)
		next = blockEnd(to, size)
		for from < next {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("reading %s at byte %d: %w", f.Name(), from, err)
			}
			part := buffer[:min(next-from, int64(len(buffer)))]
			if err := limit.add(f, int64(len(part))); err != nil {
				return err
			}
			if err := readFull(f, part, from); err != nil {
				return err
			}
			for at := 0; at < len(part); at += digestBlock {
				block := part[at:min(at+digestBlock, len(part))]
				if !bytes.Equal(block, zeroChunk[:len(block)]) {
					_ = binary.Write(h, binary.LittleEndian, from+int64(at)) // a hash accepts everything
					h.Write(block)
				}
			}
			_ = unix.Fadvise(int(f.Fd()), from, int64(len(part)), unix.FADV_DONTNEED)
			done(int64(len(part)))
			from += int64(len(part))
		}
		return nil
	})
	h.Sum(d[:0])
	return d, err
}
