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

// Of linux/fs.h, on every architecture whose ioctls are numbered the common way.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// ErrThawed: a file system was thawed early by another process, so the copy is not of one instant.
var ErrThawed = errors.New("thawed too early")

// Frozen is a file system that takes no writes until Thaw. A guard, a process of its own, thaws it when the limit is
// over or this process dies, however it dies; only if the guard dies with it, as all processes of a container do,
// it stays frozen until ThawLeftover.
type Frozen struct {
	mountpoint string
	root       *os.File
	guard      *guard
	once       sync.Once
	result     error
}

// Freeze writes out what is in memory and holds all writes to the file system mounted at mountpoint, for at most
// limit. When ctx ends first the file system is thawed as soon as the kernel gives it back.
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
				_ = f.Thaw() // no caller relies on it
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
	// Most is written before writers are stopped.
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		root.Close()
		return nil, err
	}
	g, err := startGuard(root, limit)
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
	if err := g.begin(); err != nil {
		return nil, fmt.Errorf("the freeze guard is gone: %w", errors.Join(err, f.Thaw()))
	}
	return f, nil
}

// freezable keeps the host running: where a volume was unmounted a moment ago, its mount point is a directory of the
// host's own file system.
func freezable(root *os.File) error {
	var st, host unix.Statx_t
	if err := unix.Statx(int(root.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO, &st); err != nil {
		return err
	}
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO, &host); err != nil {
		return err
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errors.New("nothing is mounted there")
	}
	if st.Dev_major == host.Dev_major && st.Dev_minor == host.Dev_minor {
		return errors.New("it belongs to the host's root file system")
	}
	return nil
}

// Thaw lets writes go on. Every call returns what the first did.
func (f *Frozen) Thaw() error {
	f.once.Do(func() { f.result = f.thaw() })
	return f.result
}

func (f *Frozen) thaw() error {
	defer f.root.Close()
	err := uninterrupted(func() error { return unix.IoctlSetInt(int(f.root.Fd()), fiThaw, 0) })
	guardErr := f.guard.dismiss()
	switch {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("thawing %s: %w: by the guard after the time limit, or by another process", f.mountpoint, errors.Join(ErrThawed, guardErr))
	case err != nil:
		return fmt.Errorf("thawing %s: %w", f.mountpoint, err)
	case guardErr != nil:
		return fmt.Errorf("thawing %s: %w: %w", f.mountpoint, ErrThawed, guardErr)
	}
	return nil
}

// ThawLeftover thaws what a killed process left frozen; what is not frozen stays as it is.
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
