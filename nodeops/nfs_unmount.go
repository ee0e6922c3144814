package nodeops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var (
	unmounts, sharedGroups offThread[any]
	sharedUsages           offThread[FSUsage]
)

// StatfsShared is Statfs for a mount whose server may not answer. All mounts of a file system share one call, since
// that may hang, and nothing else accesses the file system before it returns.
func StatfsShared(ctx context.Context, m *Mount) (FSUsage, error) {
	hangs := fmt.Sprintf("usage of %s: the server of %s does not answer", m.Target, m.Source)
	return sharedUsages.do(ctx, m.Device, hangs, func() (FSUsage, error) { return statfs(m.Target) })
}

// UnmountShared removes all mounts at target, even if their server does not answer. Each step is limited to step: an
// ordinary unmount; if the server does not answer and no other mount has the file system, a forced one, which fails all
// pending requests and loses unwritten data; then a lazy one, which leaves the rest to the last user. The last mount is not
// forced before the server has been silent for giveUp since the first attempt: until then the caller repeats. A mount that
// is in use, of a server that answers, is an error, as for Unmount.
func UnmountShared(ctx context.Context, target string, step, giveUp time.Duration) error {
	for {
		stack, err := stackAt(target)
		if err != nil || len(stack) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("unmounting %s: %w", target, err)
		}
		if err := unmountShared(ctx, &stack[len(stack)-1], step, giveUp); err != nil {
			return fmt.Errorf("unmounting %s from %s: %w", stack[len(stack)-1].Source, target, err)
		}
	}
}

func unmountShared(ctx context.Context, m *Mount, step, giveUp time.Duration) error {
	err := tryUnmount(ctx, m, 0, step)
	if err == nil || !isMounted(m) {
		silent.end(m.ID)
		return nil // the kernel still writes its unwritten data
	}
	asked := ask(ctx, m, step)
	if asked == nil {
		silent.end(m.ID)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w; stop the processes that have files open there", err)
		}
		return err
	}
	if isOnlyMount(m) {
		if lasts := silent.lasts(m.ID, giveUp); errors.Is(asked, context.DeadlineExceeded) && lasts < giveUp {
			return fmt.Errorf("its server has not answered for %s; what is not written to it yet is given up after %s: %w", lasts.Round(time.Second), giveUp, asked)
		}
		if err := tryUnmount(ctx, m, unix.MNT_FORCE, step); err == nil || !isMounted(m) {
			silent.end(m.ID)
			return nil
		}
	}
	if err := tryUnmount(ctx, m, unix.MNT_DETACH, step); err != nil && isMounted(m) {
		return err
	}
	silent.end(m.ID)
	return nil
}

// silences has since when servers are known not to answer, by the mounts that are to go. The kernel gives the ID of a mount to
// another one later.
type silences struct {
	mu    sync.Mutex
	mount map[string]silence
}

type silence struct{ since, last time.Time }

var silent = silences{mount: map[string]silence{}}

// lasts returns how long ago the first of a row of calls was. After a pause of giveUp another row begins.
func (s *silences) lasts(mount string, giveUp time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	is, known := s.mount[mount]
	if !known || now.Sub(is.last) > giveUp {
		is.since = now
	}
	is.last = now
	s.mount[mount] = is
	return now.Sub(is.since)
}

func (s *silences) end(mount string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mount, mount)
}

func tryUnmount(ctx context.Context, m *Mount, flags int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := unmounts.do(ctx, m.ID+" "+strconv.Itoa(flags), "the unmount hangs", func() (any, error) {
		return nil, uninterrupted(func() error { return unix.Unmount(m.Target, flags|unix.UMOUNT_NOFOLLOW) })
	})
	return err
}

// ask returns an error if the server does not answer in time, or no longer has what is mounted.
func ask(ctx context.Context, m *Mount, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := StatfsShared(ctx, m)
	return err
}

// isMounted returns whether a mount still exists; true if the mount table cannot be read.
func isMounted(m *Mount) bool {
	all, err := Mounts()
	return err != nil || slices.ContainsFunc(all, func(other Mount) bool { return other.ID == m.ID })
}

// isOnlyMount returns whether no other visible mount has the file system.
func isOnlyMount(m *Mount) bool {
	all, err := Mounts()
	return err == nil && !slices.ContainsFunc(all, func(other Mount) bool { return other.Device == m.Device && other.ID != m.ID })
}

// SetTopGroup makes the root directory of a mount, whose server may not answer, writable for a group, which new files
// in it inherit. It does nothing if that is so already, and changes nothing below.
func SetTopGroup(ctx context.Context, m *Mount, gid int) error {
	_, err := sharedGroups.do(ctx, m.Device+" "+strconv.Itoa(gid), "the server does not answer", func() (any, error) {
		return nil, setTopGroup(m.Target, gid)
	})
	if err != nil {
		return fmt.Errorf("changing the group of %s to %d: %w", m.Target, gid, err)
	}
	return nil
}

func setTopGroup(dir string, gid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if int(st.Gid) != gid {
		if err := unix.Lchown(dir, -1, gid); err != nil {
			return err
		}
	}
	if mode := st.Mode | groupBits(st.Mode); mode != st.Mode {
		return unix.Chmod(dir, mode&0o7777) // after chown, which clears bits
	}
	return nil
}
