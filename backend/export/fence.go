package export

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// fenceType is a file system without file handles. A client that forges a second handle of its volume's top gets NFS-Ganesha
// to go up from there, and from whatever that can open beneath the volumes down into every other.
const fenceType = "ramfs"

// fence puts such a file system beneath the mounts, unless there is one.
func (b *Backend) fence(ctx context.Context) error {
	m, err := nodeops.MountAt(b.ExportsDir)
	if err != nil || m != nil && m.FSType == fenceType {
		return err
	}
	ids, err := b.targets()
	if err != nil {
		return err
	}
	for _, id := range ids { // they would be hidden
		if err := b.unmount(ctx, id); err != nil {
			return err
		}
	}
	if err := unix.Mount("holdfast", b.ExportsDir, fenceType, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a %s at %s, without which clients could reach each other's volumes: %w", fenceType, b.ExportsDir, err)
	}
	return nil
}

// endFence takes it away once nothing is mounted on it.
func (b *Backend) endFence() {
	if err := unix.Unmount(b.ExportsDir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		b.Log.Warn("the file system beneath the exports stays mounted", "directory", b.ExportsDir, "error", err) // and is taken up again
	}
}
