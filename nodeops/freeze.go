package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// From linux/fs.h, for all architectures with the common numbering of ioctls.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// ErrThawed means that a file system was thawed early, by another process or at the limit, so the copy may not be consistent.
var ErrThawed = errors.New("thawed too early")

// Frozen is a frozen file system; writes block until Thaw, which comes by itself after the limit. A guard process thaws it when this
// process dies. If the guard dies too, as all processes of a container do, the file system stays frozen until
// ThawLeftover.
type Frozen struct {
	mountpoint string
	root       *os.File
	guard      *guard
	limit      *time.Timer
	once       sync.Once
	result     error
}

// Freeze syncs the file system mounted at mountpoint and blocks all writes to it, for at most limit. If ctx ends during
// the freeze, the file system is thawed as soon as the kernel has frozen it.
func Freeze(ctx context.Context, mountpoint string, limit time.Duration) (*Frozen, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("freezing %s: %w", mountpoint, err)
	}
	if limit <= 0 {
		return nil, fmt.Errorf("freezing %s: the limit is %s; it must be positive", mountpoint, limit)
	}
	type outcome struct {
		frozen *Frozen
		err    error
	}
	done := make(chan outcome)
	go func() {
		f, err := freeze(mountpoint, limit)
		select {
		case done <- outcome{f, err}:
		case <-ctx.Done():
			if err == nil {
				_ = f.Thaw() // no caller depends on it
			}
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("freezing %s: %w", mountpoint, o.err)
		}
		return o.frozen, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("freezing %s: %w", mountpoint, ctx.Err())
	}
}

func freeze(mountpoint string, limit time.Duration) (*Frozen, error) {
	root, err := os.OpenFile(mountpoint, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := freezable(root); err != nil {
		root.Close()
		return nil, err
	}
	// Sync before the freeze, so that writers are blocked for a shorter time.
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		root.Close()
		return nil, err
	}
	g, err := startGuard(root)
	if err != nil {
		root.Close()
		return nil, err
	}
	if err := unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0); err != nil {
		_ = g.dismiss()
		root.Close()
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("it is frozen already; if a killed process left it frozen, run fsfreeze --unfreeze %s: %w", mountpoint, err)
		}
		return nil, err
	}
	f := &Frozen{mountpoint: mountpoint, root: root, guard: g}
	f.limit = time.AfterFunc(limit, func() { f.end(fmt.Errorf("%w: the limit of %s is over", ErrThawed, limit)) })
	return f, nil
}

// freezable fails for the host's own file system: if a volume was unmounted a moment ago, its mount point is a
// directory of that.
func freezable(root *os.File) error {
	var st, host unix.Statx_t
	if err := unix.Statx(int(root.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO, &st); err != nil {
		return err
	}
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO, &host); err != nil {
		return err
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return ErrNotMounted
	}
	if st.Dev_major == host.Dev_major && st.Dev_minor == host.Dev_minor {
		return errors.New("it belongs to the host's root file system")
	}
	return nil
}

// Thaw unblocks writes. Repeated calls return the result of the first.
func (f *Frozen) Thaw() error {
	f.limit.Stop()
	f.end(nil)
	return f.result
}

func (f *Frozen) end(early error) {
	f.once.Do(func() {
		if f.result = f.thaw(); f.result == nil {
			f.result = early
		}
	})
}

func (f *Frozen) thaw() error {
	defer f.root.Close()
	err := uninterrupted(func() error { return unix.IoctlSetInt(int(f.root.Fd()), fiThaw, 0) })
	guardErr := f.guard.dismiss()
	switch {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("thawing %s: %w: by its guard, or by another process", f.mountpoint, errors.Join(ErrThawed, guardErr))
	case err != nil:
		return fmt.Errorf("thawing %s: %w", f.mountpoint, err)
	case guardErr != nil:
		return fmt.Errorf("thawing %s: %w: %w", f.mountpoint, ErrThawed, guardErr)
	}
	return nil
}

// ThawLeftover thaws what a killed process left frozen; it is a no-op if nothing is frozen.
func ThawLeftover(mountpoint string) error {
	root, err := os.OpenFile(mountpoint, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	err = uninterrupted(func() error { return unix.IoctlSetInt(int(root.Fd()), fiThaw, 0) })
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return fmt.Errorf("thawing %s: %w", mountpoint, err)
}
