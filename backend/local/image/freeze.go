package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// How long writes may be frozen: a clone takes milliseconds, a copy depends on the size.
const (
	cloneLimit = time.Minute
	copyLimit  = time.Hour
)

// Freeze freezes the file system that is mounted from the image. An image that is attached but not mounted is a raw
// block volume in use: a clone of it alone is atomic in the kernel; a copy, or a clone together with other volumes, is
// not. An image that is not attached may be, while it is copied.
func (en *Engine) Freeze(ctx context.Context, e *engine.Entry, together bool) (func() error, error) {
	before, err := e.Dir.Lstat(file)
	if err != nil {
		return nil, err
	}
	devices, err := nodeops.LoopsOf(imagePath(e))
	switch {
	case err != nil:
		return nil, err
	case len(devices) == 0 && en.reflink && !together:
		return free, nil
	case len(devices) == 0:
		return func() error { return checkUnused(e, before) }, nil
	}
	mounts, err := nodeops.Mounts()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		for _, device := range devices {
			if m.Root == "/" && nodeops.LoopUnder(&m) == device {
				frozen, err := nodeops.Freeze(ctx, m.Target, en.limit())
				if err != nil {
					return nil, err
				}
				return frozen.Thaw, nil
			}
		}
	}
	attached := strings.Join(devices, ", ")
	switch {
	case together:
		return nil, fmt.Errorf("%w: volume %s is attached as a raw block device (%s), which cannot be frozen together with other volumes; stop its user first", backend.ErrPrecondition, e.ID, attached)
	case !en.reflink:
		return nil, fmt.Errorf("%w: volume %s is attached as a raw block device (%s) and its pool cannot clone (xfs with reflink or btrfs can), so a copy would not belong to one instant; stop its user first", backend.ErrPrecondition, e.ID, attached)
	}
	for _, device := range devices {
		if err := nodeops.SyncDevice(device); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// free is the release function if nothing was frozen.
func free() error { return nil }

// checkUnused fails if an image has been attached or written since before: a node does that whenever a pod starts.
func checkUnused(e *engine.Entry, before os.FileInfo) error {
	devices, err := nodeops.LoopsOf(imagePath(e))
	if err != nil {
		return err
	}
	after, err := e.Dir.Lstat(file)
	if err != nil {
		return err
	}
	if len(devices) > 0 || !after.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%w: volume %s was put to use while it was copied, so the copy would not belong to one instant; it is copied again", backend.ErrUnavailable, e.ID)
	}
	return nil
}

func (en *Engine) limit() time.Duration {
	if en.reflink {
		return cloneLimit
	}
	return copyLimit
}

// Recover thaws file systems that a killed process may have left frozen. One that cannot be thawed because it failed
// does not prevent the others from being thawed.
func (en *Engine) Recover(context.Context) error {
	mounts, err := nodeops.Mounts()
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range mounts {
		device := nodeops.LoopUnder(&m)
		if device == "" || m.Root != "/" {
			continue
		}
		image, err := nodeops.BackingFile(device)
		if err != nil || !strings.HasPrefix(image, en.path+"/") || !nodeops.IsAttached(device, image) {
			continue
		}
		if err := nodeops.ThawLeftover(m.Target); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
