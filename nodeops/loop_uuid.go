package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// uuidAt is the offset of the UUID.
var uuidAt = map[string]int64{"ext4": 1024 + 0x68, "xfs": 32}

// RenewUUID gives the file system on an unmounted device a new UUID: programs that identify file systems by it would
// confuse a copy with its source. If the source was mounted during the copy, the log of the copy must have been
// replayed by a mount. For btrfs there is RenewFSID.
func RenewUUID(ctx context.Context, device, fstype string) error {
	at, ok := uuidAt[fstype]
	if !ok {
		return nil
	}
	before, err := uuidOf(device, at)
	if err != nil {
		return err
	}
	if fstype == "ext4" {
		err = renewExt4(ctx, device)
	} else {
		_, err = run(ctx, "xfs_admin", "-U", "generate", device)
	}
	if err != nil {
		return fmt.Errorf("changing the UUID of the %s on %s: %w", fstype, device, err)
	}
	if now, err := uuidOf(device, at); err != nil || now == before { // xfs_admin does not report all failures
		return errors.Join(err, fmt.Errorf("the %s on %s has kept its UUID; mount and unmount it, then try again", fstype, device))
	}
	return nil
}

// renewExt4 first makes the metadata checksums independent of the UUID, so that they need not be rewritten.
func renewExt4(ctx context.Context, device string) error {
	_, seed := run(ctx, "tune2fs", "-O", "metadata_csum_seed", device) // it fails if there are no such checksums
	_, err := run(ctx, "tune2fs", "-U", "random", device)
	if err == nil {
		return nil
	}
	if _, check := run(ctx, "e2fsck", "-f", "-p", device); check != nil {
		return errors.Join(seed, err, check)
	}
	_, err = run(ctx, "tune2fs", "-U", "random", device)
	return err
}

// uuidOf reads from the device, not from its page cache.
func uuidOf(device string, at int64) (uuid [16]byte, err error) {
	f, err := os.Open(device)
	if err != nil {
		return uuid, err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EACCES) {
		return uuid, fmt.Errorf("flushing the buffers of %s: %w", device, err)
	}
	_, err = f.ReadAt(uuid[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return uuid, fmt.Errorf("reading the UUID on %s: %w", device, err)
	}
	return uuid, nil
}
