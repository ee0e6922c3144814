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

// How long writes may be frozen. A clone takes milliseconds where the disk is not busy; a copy depends on the size, and the
// probes of a pod wait for it.
const (
	cloneLimit = time.Minute
	copyLimit  = 10 * time.Second
)

// triedAgain is after what time a volume is frozen again that could not be copied within the limit.
const triedAgain = 24 * time.Hour

// thawSlack is how long after the limit the file system is thawed even if the copy, which is ended then, has not ended.
const thawSlack = 10 * time.Second

// Frozen freezes the file system that is mounted from the image. An image that is attached but not mounted is a raw
// block volume in use: a clone of it alone is atomic in the kernel; a copy, or a clone together with other volumes, is
// not. An image that is not attached may be, while it is copied.
func (en *Engine) Frozen(ctx context.Context, e *engine.Entry, group string, do func(context.Context) error) error {
	before, err := e.Dir.Lstat(file)
	if err != nil {
		return err
	}
	devices, err := nodeops.LoopsOf(imagePath(e))
	switch {
	case err != nil:
		return err
	case len(devices) == 0 && en.reflink && group == "":
		return do(ctx)
	case len(devices) == 0:
		return errors.Join(do(ctx), checkUnused(e, before))
	}
	mounts, err := nodeops.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		for _, device := range devices {
			if m.Root == "/" && nodeops.LoopUnder(&m) == device {
				return en.mountedFrozen(ctx, attempt{e.ID, group}, m.Target, do)
			}
		}
	}
	attached := strings.Join(devices, ", ")
	switch {
	case group != "":
		return fmt.Errorf("%w: volume %s is attached as a raw block device (%s), which cannot be frozen together with other volumes; stop the pods that use it first", backend.ErrPrecondition, e.ID, attached)
	case !en.reflink:
		return fmt.Errorf("%w: volume %s is attached as a raw block device (%s) and its pool cannot clone (xfs with reflink or btrfs can), so a copy would not belong to one instant; stop the pods that use it first", backend.ErrPrecondition, e.ID, attached)
	}
	for _, device := range devices {
		if err := nodeops.SyncDevice(device); err != nil {
			return err
		}
	}
	return do(ctx)
}

// attempt is to copy a mounted volume, alone or at one instant with the others of a group.
type attempt struct {
	id    backend.ID
	group string
}

// mountedFrozen lets the user of a mounted volume wait once, not with each repeat of a call for a copy that takes too long.
func (en *Engine) mountedFrozen(ctx context.Context, a attempt, mountpoint string, do func(context.Context) error) error {
	for _, before := range []attempt{{id: a.id}, a} {
		if at, is := en.slow.Load(before); is && time.Since(at.(time.Time)) < triedAgain {
			return en.tooSlow(before, "this time it was not tried")
		}
	}
	frozen, err := nodeops.Freeze(ctx, mountpoint, en.FreezeLimit+thawSlack)
	if err != nil {
		return err
	}
	defer func() { _ = frozen.Thaw() }() // also after a panic
	limited, cancel := context.WithTimeout(ctx, en.FreezeLimit)
	defer cancel()
	err = do(limited)
	thawErr := frozen.Thaw()
	late := errors.Is(err, context.DeadlineExceeded) || limited.Err() != nil && errors.Is(thawErr, nodeops.ErrThawed)
	if err = errors.Join(err, thawErr); late && !en.reflink {
		en.slow.Store(a, time.Now())
		err = en.tooSlow(a, err.Error())
	}
	return err
}

func (en *Engine) tooSlow(a attempt, why string) error {
	what := "and not copied in that time"
	if a.group != "" {
		what = "and the volumes " + a.group + " were not copied together in that time"
	}
	return fmt.Errorf("%w: volume %s was frozen for %s, %s: its pool cannot clone (xfs with reflink or btrfs can). "+
		"Stop the pods that use it first; while it is in use, it is not frozen again for %s (%s)", backend.ErrPrecondition, a.id, en.FreezeLimit, what, triedAgain, why)
}

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
