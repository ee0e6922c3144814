package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// unmountAtEnd unmounts what is still mounted when the test ends.
func unmountAtEnd(t *testing.T, target string) {
	t.Cleanup(func() {
		if m, err := MountAt(target); m != nil || err != nil {
			check.Report(t, errors.Join(err, unix.Unmount(target, unix.MNT_DETACH)))
		}
	})
}

// tmpfs mounts a tmpfs until the test ends.
func tmpfs(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	dir := t.TempDir()
	check.OK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	unmountAtEnd(t, dir)
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
			target := t.TempDir()
			unmountAtEnd(t, target)
			check.OK(t, BindShared(t.Context(), dir, target, test.readOnly, test.options))
			var st unix.Statfs_t
			check.OK(t, unix.Statfs(target, &st))
			const all = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_RELATIME
			if got := st.Flags & all; got != test.flags {
				t.Errorf("the flags are %x, want %x", got, test.flags)
			}
			m, err := MountAt(target)
			if err != nil || m == nil || m.FSType != "tmpfs" || m.ReadOnly != test.readOnly {
				t.Errorf("it is %+v, %v", m, err)
			}
			check.Report(t, UnmountShared(t.Context(), target, time.Minute, 0))
			if m, err := MountAt(target); m != nil || err != nil {
				t.Errorf("afterwards there is %+v, %v", m, err)
			}
		})
	}
	if err := BindShared(t.Context(), dir, t.TempDir(), false, []string{"nconnect=4"}); err == nil || !strings.Contains(err.Error(), "nconnect=4") {
		t.Errorf("an option of the file system: %v", err)
	}
}

func clonedMount(dir string) (newMount, error) {
	fd, err := cloneMount(dir, unix.MountAttr{})
	return newMount{fd: fd}, err
}

func TestDetachedMount_IsNotSeenBeforeItIsAccepted(t *testing.T) {
	dir := tmpfs(t)
	target := t.TempDir()
	unmountAtEnd(t, target)
	var d detachedMounts
	refusal := errors.New("refused")
	for _, want := range []error{refusal, nil} {
		var given newMount
		err := d.mountAt(t.Context(), target, "a", func() (newMount, error) { return clonedMount(dir) }, func(m newMount) error {
			given = m
			if at, err := MountAt(target); at != nil || err != nil {
				t.Errorf("before it is accepted there is %+v, %v", at, err)
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if at, err := MountAt(target); (at != nil) != (want == nil) || err != nil {
			t.Errorf("after %v there is %+v, %v", want, at, err)
		}
		if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", given.fd)); err == nil {
			t.Errorf("its descriptor is still open, as %s", link)
		}
	}
}

func TestDetachedMount_AbandonedCallNeverMounts(t *testing.T) {
	dir := tmpfs(t)
	target := t.TempDir()
	var d detachedMounts
	answer, calls := make(chan struct{}), 0
	open := func() (newMount, error) {
		calls++
		<-answer
		return clonedMount(dir)
	}
	for range 3 {
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := d.mountAt(short, target, "a", open, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("of a server that does not answer: %v", err)
		}
		cancel()
	}
	if err := d.mountAt(t.Context(), target, "b", open, nil); err == nil || !strings.Contains(err.Error(), "a there") {
		t.Errorf("another wish for the same target: %v", err)
	}
	m := d.running[target]
	close(answer)
	<-m.done
	d.mu.Lock() // the cleanup has run
	left := len(d.running)
	d.mu.Unlock()
	if left > 0 || calls != 1 {
		t.Errorf("%d are left after %d calls", left, calls)
	}
	if at, err := MountAt(target); at != nil || err != nil {
		t.Errorf("it appeared as %+v, %v", at, err)
	}
	if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.opened.fd)); err == nil {
		t.Errorf("its descriptor is still open, as %s", link)
	}
}

func TestDetachedMount_RetryGetsTheResultOfTheCallBefore(t *testing.T) {
	dir := tmpfs(t)
	target := t.TempDir()
	unmountAtEnd(t, target)
	var d detachedMounts
	answer, calls := make(chan struct{}), 0
	open := func() (newMount, error) {
		calls++
		<-answer
		return clonedMount(dir)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := d.mountAt(short, target, "a", open, nil); err == nil {
		t.Fatal("it was mounted before the server answered")
	}
	done := make(chan error)
	go func() { done <- d.mountAt(t.Context(), target, "a", open, nil) }()
	close(answer)
	check.OK(t, <-done)
	if at, err := MountAt(target); at == nil || err != nil {
		t.Errorf("it is not there: %v", err)
	}
}

func TestDetachedMount_RespondingFileSystemIsUnmountedOnlyWhenUnused(t *testing.T) {
	dir := tmpfs(t)
	target := t.TempDir()
	check.OK(t, BindShared(t.Context(), dir, target, false, nil))
	unmountAtEnd(t, target)
	f := check.Got(os.Create(filepath.Join(target, "open")))(t)
	defer f.Close()
	if err := UnmountShared(t.Context(), target, time.Minute, 0); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "stop the processes") {
		t.Errorf("in use: %v", err)
	}
	if m, err := MountAt(target); m == nil || err != nil {
		t.Errorf("it is gone: %v", err)
	}
	f.Close()
	for range 2 {
		check.Report(t, UnmountShared(t.Context(), target, time.Minute, 0))
	}
}

func TestDetachedMount_HangingCallIsSharedByAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls offThread
		answer, begun := make(chan struct{}), 0
		hang := func() (any, error) { begun++; <-answer; return 7, nil }
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := calls.do(ctx, "a", hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		go close(answer)
		if got, err := calls.do(t.Context(), "a", hang); got != 7 || err != nil || begun != 1 {
			t.Errorf("got %v, %v after %d calls", got, err, begun)
		}
	})
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
