package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// Preen prepares an ext4 for a mount, as a booting host does for its own: it replays the journal of one that was not
// unmounted, and repairs one that is marked as having errors if that loses no data. Other types need nothing: xfs and
// btrfs replay their logs and detect errors when mounted. A clean file system costs one read, and a mounted one is
// skipped. If it cannot be repaired, the error is an ErrDamaged that says what to do.
func Preen(ctx context.Context, device, fstype string) error {
	if fstype != "ext4" {
		return nil
	}
	used, err := inUse(ctx, device)
	if err != nil {
		return fmt.Errorf("looking at the ext4 on %s: %w", device, err)
	}
	if used {
		return nil
	}
	has, err := ext4On(device)
	switch {
	case errors.Is(err, ErrDamaged):
		return nil // if it is no ext4, the mount reports what it is
	case err != nil:
		return fmt.Errorf("looking at the ext4 on %s: %w", device, err)
	case !has.marked && !has.unclean:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	// A repair is not interrupted.
	said, err := run(context.WithoutCancel(ctx), "e2fsck", "-p", device)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("checking the ext4 on %s: %w", device, err)
	case exit.ExitCode() >= 0 && exit.ExitCode()&^successBits == 0:
		return nil
	}
	was := "was not unmounted"
	if has.marked {
		was = "is marked as having errors"
	}
	image := imageOn(device)
	return fmt.Errorf("%w: the ext4 on %s %s, and e2fsck -p cannot repair it without the risk of losing files; copy %s to another place first, then run e2fsck -f %s while the volume is not in use, or restore it from a snapshot or backup; read-only it may still be mounted, to save what is in it: %w",
		ErrDamaged, device, was, image, image, oneLine(fmt.Errorf("%w: %s", err, withoutUsage(said))))
}

// successBits are the bits of e2fsck's exit code that mean success: errors were corrected, and the host should reboot
// if the file system was mounted.
const successBits = 1 | 2
