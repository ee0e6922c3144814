package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// tmpfs mounts a tmpfs until the test ends.
func tmpfs(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	dir := newTarget(t)
	check.OK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	return dir
}

func TestDetachedMount_BindOfASharedFileSystemIsTheRequestedOne(t *testing.T) {
	dir := tmpfs(t)
	for name, test := range map[string]struct {
		readOnly bool
		options  []string
		flags    int64
	}{
		"writable":  {false, nil, unix.ST_RELATIME},
		"read-only": {true, nil, unix.ST_RDONLY | unix.ST_RELATIME},
		"both":      {true, []string{"rw", "nosuid"}, unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_RELATIME},
		"strict":    {false, []string{"nosuid", "nodev", "noexec", "noatime"}, unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME},
		"the last":  {false, []string{"nosuid", "noatime", "suid", "relatime"}, unix.ST_RELATIME},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget(t)
			check.OK(t, BindShared(t.Context(), dir, target, test.readOnly, test.options))
			var st unix.Statfs_t
			check.OK(t, unix.Statfs(target, &st))
			const all = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_RELATIME
			check.Same(t, st.Flags&all, test.flags)
			if m := mountedAt(t, target); m.FSType != "tmpfs" || m.ReadOnly != test.readOnly {
				t.Errorf("it is %+v", m)
			}
			check.Report(t, UnmountShared(t.Context(), target, time.Minute, 0))
			unmounted(t, target)
		})
	}
	check.Fails(t, BindShared(t.Context(), dir, t.TempDir(), false, []string{"nconnect=4"}), nil, "nconnect=4") // an option of the file system
}

func clonedMount(dir string) (newMount, error) {
	fd, err := cloneMount(dir, unix.MountAttr{})
	return newMount{fd: fd}, err
}

func TestDetachedMount_IsNotSeenBeforeItIsAccepted(t *testing.T) {
	dir := tmpfs(t)
	target := newTarget(t)
	var d detachedMounts
	refusal := errors.New("refused")
	for _, want := range []error{refusal, nil} {
		var given newMount
		err := d.mountAt(t.Context(), target, "a", func() (newMount, error) { return clonedMount(dir) }, func(m newMount) error {
			given = m
			unmounted(t, target)
			return want
		})
		if at := check.Got(MountAt(target))(t); !errors.Is(err, want) || (at != nil) != (want == nil) {
			t.Errorf("%v, want %v, and there is %+v", err, want, at)
		}
		check.Fails(t, check.ErrorOf(os.Readlink(fmt.Sprintf("/proc/self/fd/%d", given.fd))), nil) // its descriptor is closed
	}
}

func TestDetachedMount_CallThatWasGivenUpMountsOnlyForACallerThatWaitsAgain(t *testing.T) {
	dir := tmpfs(t)
	for _, again := range []bool{false, true} {
		target := newTarget(t)
		var d detachedMounts
		answer, calls := make(chan struct{}), 0
		open := func() (newMount, error) {
			calls++
			<-answer
			return clonedMount(dir)
		}
		for range 3 {
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			check.Fails(t, d.mountAt(short, target, "a", open, nil), context.DeadlineExceeded)
			cancel()
		}
		check.Fails(t, d.mountAt(t.Context(), target, "b", open, nil), nil, "a there") // another wish for the same target
		m := d.running[target]
		if again {
			done := make(chan error)
			go func() { done <- d.mountAt(t.Context(), target, "a", open, nil) }()
			close(answer)
			check.OK(t, <-done)
			mountedAt(t, target)
			continue
		}
		close(answer)
		<-m.done
		d.mu.Lock() // the cleanup has run
		left := len(d.running)
		d.mu.Unlock()
		if left > 0 || calls != 1 {
			t.Errorf("%d are left after %d calls", left, calls)
		}
		unmounted(t, target)
		check.Fails(t, check.ErrorOf(os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.opened.fd))), nil) // its descriptor is closed
	}
}

func TestDetachedMount_RespondingFileSystemIsUnmountedOnlyWhenUnused(t *testing.T) {
	dir := tmpfs(t)
	target := newTarget(t)
	check.OK(t, BindShared(t.Context(), dir, target, false, nil))
	f := check.Got(os.Create(filepath.Join(target, "open")))(t)
	defer f.Close()
	check.Fails(t, UnmountShared(t.Context(), target, time.Minute, 0), unix.EBUSY, "stop the processes") // in use
	mountedAt(t, target)
	f.Close()
	for range 2 {
		check.Report(t, UnmountShared(t.Context(), target, time.Minute, 0))
	}
}

func TestDetachedMount_OnlyTheTopOfASharedVolumeIsGivenToAGroup(t *testing.T) {
	dir := tmpfs(t)
	inner := filepath.Join(dir, "inner")
	check.OK(t, os.Mkdir(inner, 0o755))
	m := check.Got(MountAt(dir))(t)
	for range 2 {
		check.OK(t, SetTopGroup(t.Context(), m, 4711))
	}
	var top, below unix.Stat_t
	check.OK(t, errors.Join(unix.Lstat(dir, &top), unix.Lstat(inner, &below)))
	if top.Gid != 4711 || top.Mode&0o2070 != 0o2070 || below.Gid != 0 || below.Mode&0o7777 != 0o755 {
		t.Errorf("the top is of group %d, mode %o; below %d, %o", top.Gid, top.Mode, below.Gid, below.Mode)
	}
}
