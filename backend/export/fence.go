package export

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// fenceType is a file system that supports no file handles. With a forged handle of its volume's root, a client can make
// NFS-Ganesha look up the parent directory and, if that can be opened by handle, enter every other volume.
const fenceType = "ramfs"

// fence mounts such a file system beneath the volumes, unless there is one.
func (b *Backend) fence(ctx context.Context) error {
	m, err := nodeops.MountAt(b.ExportsDir)
	if err != nil || m != nil && m.FSType == fenceType {
		return err
	}
	ids, err := b.targets()
	if err != nil {
		return err
	}
	for _, id := range ids { // the fence would hide their mounts
		if err := b.unmount(ctx, id); err != nil {
			return err
		}
	}
	if err := unix.Mount("holdfast", b.ExportsDir, fenceType, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a %s at %s, without which clients could reach each other's volumes: %w", fenceType, b.ExportsDir, err)
	}
	return nil
}

// endFence unmounts it once nothing is mounted on it.
func (b *Backend) endFence() {
	if err := unix.Unmount(b.ExportsDir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		b.Log.Warn("the file system beneath the exports stays mounted", "directory", b.ExportsDir, "error", err) // the next start uses it again
	}
}
