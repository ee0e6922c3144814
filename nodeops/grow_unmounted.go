package nodeops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// GrowUnmounted makes an ext4 that is not mounted as large as its device. That needs no capability, while the kernel
// lets only CAP_SYS_RESOURCE grow a mounted one. Repeated, also after a kill, or on another type, it changes nothing.
// What a check finds fault with is left as it is: it can be mounted at the size that it has.
func GrowUnmounted(ctx context.Context, device, fstype string) error {
	if fstype != "ext4" {
		return nil
	}
	f, err := openAlone(device)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil
	case err != nil:
		return fmt.Errorf("growing the ext4 on %s: %w", device, err)
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
	f.Close() // the commands want it alone, too
	// A check that may write would mark what it cannot mend, and that would not be mounted any more.
	if said, err := run(ctx, "e2fsck", "-f", "-n", device); err != nil {
		return fmt.Errorf("the ext4 on %s does not grow to its %d bytes, since a check of it fails; run e2fsck -f on a copy of %s while it is not in use: %w", device, size, imageOn(device), oneLine(fmt.Errorf("%w: %s", err, brief(said))))
	}
	// What has begun is not cut short. -f leaves out the question when it was checked last: just now.
	if _, err := run(context.WithoutCancel(ctx), "resize2fs", "-f", device); err != nil {
		return fmt.Errorf("growing the ext4 on %s to its %d bytes: %w", device, size, err)
	}
	return nil
}

// openAlone opens a device that nothing has mounted, in whatever mount namespace; it is EBUSY otherwise.
func openAlone(device string) (*os.File, error) {
	return os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
}

// imageOn names the file behind a loop device, and any other device itself.
func imageOn(device string) string {
	if image, err := BackingFile(device); err == nil {
		return image
	}
	return device
}

// Ext4Size is how many bytes the ext4 on a device takes of it.
func Ext4Size(device string) (int64, error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	has, err := readExt4Head(f)
	if err != nil {
		return 0, err
	}
	return has.blocks * has.blockSize, nil
}

// ext4Head is of the superblock.
type ext4Head struct {
	blockSize, blocks, first, perGroup int64
	tables                             int64 // blocks of a group's inodes
	marked                             bool  // as having errors
	unclean                            bool  // was not unmounted to the end
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
		return nil, fmt.Errorf("%w: %s holds no ext4", ErrDamaged, f.Name())
	}
	if word(0x60)&has64bit != 0 {
		h.blocks += word(0x150) << 32
	}
	h.blockSize = 1024 << shift
	h.tables = (word(0x28)*half(0x58) + h.blockSize - 1) / h.blockSize
	return h, nil
}

// growsOn says whether there is more room on a device of that size than is used. A last group that would hold hardly
// more than its own tables is never made.
func (h *ext4Head) growsOn(size int64) bool {
	const bitmaps, least = 2, 50
	blocks := size / h.blockSize
	if last := (blocks - h.first) % h.perGroup; last < h.tables+bitmaps+least {
		blocks -= last
	}
	return blocks > h.blocks
}
