package nodeops

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// XFSHead is the content of the superblock of an xfs.
type XFSHead struct {
	UUID       string
	Label      string
	Unfinished bool // mkfs was interrupted, so there is no data
}

// ReadXFSHead reads the superblock of an xfs on a device; nil if there is none.
func ReadXFSHead(device string) (*XFSHead, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readXFSHead(f)
}

func readXFSHead(f *os.File) (*XFSHead, error) {
	const uuid, label, labelEnd, inProgress, length = 32, 108, 120, 126, 512
	block := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, length), block); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	if string(block[:4]) != "XFSB" {
		return nil, nil
	}
	id := hex.EncodeToString(block[uuid : uuid+16])
	return &XFSHead{
		UUID:       strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-"),
		Label:      strings.TrimRight(string(block[label:labelEnd]), "\x00"),
		Unfinished: block[inProgress] != 0,
	}, nil
}

// EraseUnfinishedXFS erases what an interrupted mkfs left of the xfs with that UUID, so that the device is empty again.
// Anything else on the device is left unchanged and is an error.
func EraseUnfinishedXFS(device, uuid string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("erasing the unfinished xfs on %s: %w", device, err)
	}
	defer f.Close()
	head, err := readXFSHead(f)
	if err != nil {
		return err
	}
	if head == nil || head.UUID != uuid || !head.Unfinished {
		return fmt.Errorf("%w: %s does not contain the unfinished xfs %s; it is not changed", ErrNotEmpty, device, uuid)
	}
	size, err := sizeOfDevice(f)
	if err != nil {
		return err
	}
	// From the end: the first block, which identifies it, must be erased last.
	for _, at := range []int64{max(0, size-edge), 0} {
		_, err := f.WriteAt(make([]byte, min(edge, size)), at)
		if err := cmp.Or(err, f.Sync()); err != nil {
			return fmt.Errorf("erasing the unfinished xfs on %s: %w", device, err)
		}
	}
	return nil
}

// MountDisk mounts the xfs of a whole device with project quotas if the kernel supports them, and returns whether it
// does. Unlike MountFS, it lets the kernel refuse a second device with the same UUID.
func MountDisk(ctx context.Context, device, target string) (quotas bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("mounting %s: %w", device, err)
	}
	if err = mounter().Mount(device, target, "xfs", []string{"noatime", "prjquota"}); err == nil {
		return true, nil
	}
	if mounter().Mount(device, target, "xfs", []string{"noatime"}) == nil {
		return false, nil
	}
	return false, fmt.Errorf("mounting %s at %s (see the kernel's log; xfs_repair repairs a damaged xfs): %w", device, target, oneLine(err))
}

// MountDiskReadOnly mounts the xfs of a device without writing to it: not even its journal is replayed.
func MountDiskReadOnly(ctx context.Context, device, target string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	if err := mounter().Mount(device, target, "xfs", []string{"ro", "norecovery", "nouuid"}); err != nil {
		return fmt.Errorf("mounting %s to inspect it: %w", device, oneLine(err))
	}
	return nil
}
