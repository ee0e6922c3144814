package export

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// fenceType is a file system without file handles. With a forged handle of a volume's root, a client can make
// NFS-Ganesha look up the parent directory and, if that can be opened by handle, reach every other volume.
const fenceType = "ramfs"

// fence mounts such a file system on the directory of the exports, unless it is mounted.
func (b *Backend) fence(ctx context.Context) error {
	m, err := nodeops.MountAt(b.ExportsDir)
	if err != nil || m != nil && m.FSType == fenceType {
		return err
	}
	ids, err := b.targets()
	if err != nil {
		return err
	}
	for _, id := range ids { // the fence would hide mounts below it
		if err := b.unmount(ctx, id); err != nil {
			return err
		}
	}
	if err := unix.Mount("holdfast", b.ExportsDir, fenceType, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a %s at %s, without which clients could reach each other's volumes: %w", fenceType, b.ExportsDir, err)
	}
	return nil
}

// endFence unmounts it if no volume is mounted on it.
func (b *Backend) endFence() {
	if err := unix.Unmount(b.ExportsDir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		b.Log.Warn("the file system beneath the exports stays mounted", "directory", b.ExportsDir, "error", err) // the next start uses it again
	}
}
