package nodeops

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// GrowUnmounted grows an ext4 that is not mounted to the size of its device. That needs no capability, while growing a
// mounted one needs CAP_SYS_RESOURCE. It is idempotent, also after a kill, and does nothing for other types. A file
// system in which a check finds errors is not changed, and can still be mounted at its size.
func GrowUnmounted(ctx context.Context, device, fstype string) error {
	if fstype != "ext4" {
		return nil
	}
	used, err := inUse(ctx, device)
	if err != nil {
		return fmt.Errorf("growing the ext4 on %s: %w", device, err)
	}
	if used {
		return nil
	}
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	has, err := readExt4Head(f)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || !has.growsOn(size) {
		return err
	}
	// A check that may write would mark errors that it cannot repair, and such a file system would not be mounted.
	if said, err := run(ctx, "e2fsck", "-f", "-n", device); err != nil {
		return fmt.Errorf("the ext4 on %s does not grow to %s, since a check of it fails; run e2fsck -f on a copy of %s while it is not in use: %w", device, mebibytes(size), imageOn(device), oneLine(fmt.Errorf("%w: %s", err, withoutUsage(said))))
	}
	// A resize is not interrupted. -f skips the requirement of a recent check, which has just been done.
	if _, err := run(context.WithoutCancel(ctx), "resize2fs", "-f", device); err != nil {
		return fmt.Errorf("growing the ext4 on %s to %s: %w", device, mebibytes(size), err)
	}
	return nil
}

// imageOn returns the file behind a loop device, or the name of any other device.
func imageOn(device string) string {
	if image, err := BackingFile(device); err == nil {
		return image
	}
	return device
}

// Ext4Size returns the size of the ext4 on a device.
func Ext4Size(device string) (int64, error) {
	has, err := ext4On(device)
	if err != nil {
		return 0, err
	}
	return has.blocks * has.blockSize, nil
}

// ext4Head has fields of the superblock.
type ext4Head struct {
	blockSize, blocks, first, perGroup int64
	tables                             int64 // blocks of a group's inode table
	marked                             bool  // marked as having errors
	unclean                            bool  // was not unmounted cleanly
}

func ext4On(device string) (*ext4Head, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readExt4Head(f)
}

func readExt4Head(f *os.File) (*ext4Head, error) {
	const (
		at, length, magic       = 1024, 1024, 0xef53
		has64bit, needsRecovery = 0x80, 0x4
		valid, errorsFound      = 0x1, 0x2
	)
	b := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(f, at, length), b); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	word := func(at int) int64 { return int64(binary.LittleEndian.Uint32(b[at:])) }
	half := func(at int) int64 { return int64(binary.LittleEndian.Uint16(b[at:])) }
	shift := word(0x18)
	h := &ext4Head{
		blocks: word(0x4), first: word(0x14), perGroup: word(0x20),
		marked: half(0x3a)&errorsFound != 0, unclean: half(0x3a)&valid == 0 || word(0x60)&needsRecovery != 0,
	}
	if half(0x38) != magic || shift > 6 || h.perGroup == 0 {
		return nil, fmt.Errorf("%w: %s does not contain an ext4", ErrDamaged, f.Name())
	}
	if word(0x60)&has64bit != 0 {
		h.blocks += word(0x150) << 32
	}
	h.blockSize = 1024 << shift
	h.tables = (word(0x28)*half(0x58) + h.blockSize - 1) / h.blockSize
	return h, nil
}

// growsOn returns whether the file system would grow on a device of that size. resize2fs does not create a last group
// with hardly more than its own tables.
func (h *ext4Head) growsOn(size int64) bool {
	const bitmaps, least = 2, 50
	blocks := size / h.blockSize
	if last := (blocks - h.first) % h.perGroup; last < h.tables+bitmaps+least {
		blocks -= last
	}
	return blocks > h.blocks
}
