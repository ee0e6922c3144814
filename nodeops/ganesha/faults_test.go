package ganesha

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// survives fails the test unless a server recovers from harm, with its exports and those that are added while it is
// down.
func survives(t *testing.T, c Config, harm func(*process)) {
	t.Helper()
	one, two, three := newExport(t, 1), newExport(t, 2), newExport(t, 3)
	r := prepare(t, c, one, two)
	r.start()
	before := r.up()
	harm(before)
	r.put(three)
	check.OK(t, r.Remove(r.within(), two.ID))
	r.is(one, three)
	after := r.up()
	if after == before {
		t.Fatal("nothing was started again")
	}
	for _, c := range []*child{before.ganesha, before.bus} {
		select {
		case <-c.done:
		default:
			t.Errorf("%s of before still runs", c.name)
		}
	}
	check.Report(t, probe(r.within(), r.config.address(), patient))
}

func TestServer_GaneshaThatDiesIsRestartedWithAllDesiredExports(t *testing.T) {
	survives(t, testConfig(t), func(l *process) { signal(t, l.ganesha, unix.SIGKILL) })
}

func TestServer_GaneshaThatExitsIsRestarted(t *testing.T) {
	survives(t, testConfig(t), func(l *process) {
		signal(t, l.ganesha, unix.SIGTERM)
		awaitEnd(t, l.ganesha) // it executes requests until then
	})
}

func TestServer_GaneshaThatHangsIsKilledAndRestarted(t *testing.T) {
	c := testConfig(t)
	c.Patience = 500 * time.Millisecond
	survives(t, c, func(l *process) { signal(t, l.ganesha, unix.SIGSTOP) })
}

func TestServer_GaneshaOutOfDescriptorsIsRestarted(t *testing.T) {
	c := testConfig(t)
	c.Patience = 500 * time.Millisecond
	survives(t, c, func(l *process) {
		check.OK(t, unix.Prlimit(l.ganesha.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4, Max: 4}, nil))
		awaitEnd(t, l.ganesha)
	})
}

func awaitEnd(t *testing.T, c *child) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patient):
		t.Errorf("%s still runs", c.name)
	}
}

func TestServer_WithAFullVolumeServes(t *testing.T) {
	c := testConfig(t)
	full := hostfs.New(t, hostfs.Ext4, 16<<20)
	c.RecoveryDir = filepath.Join(full, "recovery")
	e := exportOf(1, filepath.Join(full, "volume"))
	check.OK(t, errors.Join(os.Mkdir(c.RecoveryDir, 0o700), os.Mkdir(e.Path, 0o755)))
	f, err := os.Create(filepath.Join(e.Path, "file"))
	check.OK(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 1 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	r := prepare(t, c, e)
	r.start()
	l := r.up()
	signal(t, l.ganesha, unix.SIGKILL)
	<-l.ganesha.done
	r.is(e)
}

// As on a node that was shut out of its Ceph cluster: another one may serve the volumes by now.
func TestServer_WhoseDiskTakesNoWritesEndsAtOnceAndServesWhenItDoesAgain(t *testing.T) {
	c := testConfig(t)
	c.RecoveryDir = hostfs.New(t, hostfs.Ext4, 16<<20)
	c.Interval = time.Hour
	r := prepare(t, c, newExport(t, 1))
	r.start()
	l := r.up()
	remount := func(how uintptr) {
		err := error(unix.EBUSY) // while a probe has its file open
		for ctx := r.within(); errors.Is(err, unix.EBUSY) && ctx.Err() == nil; runtime.Gosched() {
			err = unix.Mount("", c.RecoveryDir, "", unix.MS_REMOUNT|how, "")
		}
		check.OK(t, err)
	}
	remount(unix.MS_RDONLY)
	writable := sync.OnceFunc(func() { remount(0) })
	defer writable()
	awaitEnd(t, l.ganesha)
	for ctx := r.within(); r.attempts() < 3; runtime.Gosched() {
		if r.Ready() || ctx.Err() != nil {
			t.Fatalf("it serves from a disk that takes no writes, or does not try again: %v", ctx.Err())
		}
	}
	writable()
	if r.up() == l {
		t.Error("nothing was started again")
	}
}

func (r *running) attempts() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restarts
}

func TestServer_HangIsNoticedWithoutARequest(t *testing.T) {
	c := testConfig(t)
	c.Patience = 500 * time.Millisecond
	r := prepare(t, c, newExport(t, 1))
	r.start()
	l := r.up()
	signal(t, l.ganesha, unix.SIGSTOP)
	select {
	case <-l.ganesha.done:
	case <-time.After(patient):
		t.Fatal("it still hangs")
	}
	if r.up() == l {
		t.Error("nothing was started again")
	}
}

func TestServer_DeathIsNoticedWithoutARequest(t *testing.T) {
	c := testConfig(t)
	c.Interval = time.Hour
	r := prepare(t, c, newExport(t, 1))
	r.start()
	for _, dies := range []func(*process) *child{
		func(l *process) *child { return l.ganesha },
		func(l *process) *child { return l.bus },
	} {
		l := r.up()
		signal(t, dies(l), unix.SIGKILL)
		<-dies(l).done
		if r.up() == l {
			t.Error("nothing was started again")
		}
	}
}

func TestBus_ThatDiesIsRestarted(t *testing.T) {
	survives(t, testConfig(t), func(l *process) { signal(t, l.bus, unix.SIGKILL) })
}

func TestBus_ThatHangsIsKilledAndRestarted(t *testing.T) {
	c := testConfig(t)
	c.Patience = 500 * time.Millisecond
	survives(t, c, func(l *process) { signal(t, l.bus, unix.SIGSTOP) })
}

// A change that Ganesha did not execute because of it must not be lost.
func TestServer_ChangeThatKillsGaneshaIsAppliedByTheNext(t *testing.T) {
	one, two := newExport(t, 1), newExport(t, 2)
	r := prepare(t, testConfig(t), one)
	r.start()
	l := r.up()
	signal(t, l.ganesha, unix.SIGSTOP)
	put := make(chan error, 1)
	go func() { put <- r.Put(r.within(), two) }()
	for r.recorded() < 2 {
		runtime.Gosched()
	}
	signal(t, l.ganesha, unix.SIGKILL)
	check.OK(t, <-put)
	r.is(one, two)
}

func (r *running) recorded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.exports)
}

func TestServer_HangDuringAStopIsEnded(t *testing.T) {
	c := testConfig(t)
	c.StopLimit = 200 * time.Millisecond
	r := prepare(t, c)
	r.start()
	l := r.up()
	signal(t, l.ganesha, unix.SIGSTOP)
	r.stopWith(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "was killed") {
			t.Errorf("it ended with %v, want that it says what it did", err)
		}
	})
	if err := unix.Kill(l.ganesha.pid, 0); err != unix.ESRCH {
		t.Errorf("it still runs: %v", err)
	}
}

func TestServer_MissingProgramIsNamedAndStartedWhenInstalled(t *testing.T) {
	c := testConfig(t)
	var log hearing
	c.Log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil))
	bus := check.Got(exec.LookPath("dbus-daemon"))(t)
	path, bin := os.Getenv("PATH"), newExport(t, 1).Path
	t.Setenv("PATH", bin)
	r := prepare(t, c, newExport(t, 1))
	r.start()
	log.await(t, "this host has no dbus-daemon; install the package")
	check.OK(t, os.Symlink(bus, filepath.Join(bin, "dbus-daemon")))
	log.await(t, "this host has no ganesha.nfsd; install the package")
	t.Setenv("PATH", path)
	r.up()
	processes := check.Got(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	busses := 0
	for _, file := range processes {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), filepath.Join(c.RunDir, "bus.conf")) {
			busses++
		}
	}
	if busses != 1 {
		t.Errorf("%d busses run, want that of the server that is up", busses)
	}
}

func TestServer_StopDuringAStartIsClean(t *testing.T) {
	for _, after := range []string{"", "Starting: Ganesha Version", "Now IN GRACE", "was started successfully"} {
		c := testConfig(t)
		var log hearing
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r := prepare(t, c, newExport(t, 1))
		r.start()
		if after != "" {
			log.await(t, after)
		}
		r.stop()
		if said := log.index("is down"); said >= 0 {
			t.Errorf("after %q it takes the stop for a fault", after)
		}
	}
}

func TestServer_StartBackoffDoublesUpToALimit(t *testing.T) {
	var wait, all time.Duration
	var waits []string
	for range 10 {
		wait = nextWait(wait, longLife)
		all += wait
		waits = append(waits, wait.String())
	}
	if got := strings.Join(waits, " "); got != "200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 30s 30s" {
		t.Errorf("they are %s", got)
	}
	if again := nextWait(wait, longLife+1); again != shortestWait {
		t.Errorf("after a long life it waits for %s", again)
	}
}

func TestServer_WithATakenPortStartsWhenItIsFree(t *testing.T) {
	c := testConfig(t)
	var log hearing
	c.Log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil))
	taken := check.Got(net.Listen("tcp", fmt.Sprintf(":%d", c.Port)))(t)
	defer taken.Close()
	r := prepare(t, c, newExport(t, 1))
	r.start()
	for _, wait := range []string{"200ms", "400ms", "800ms"} {
		if got := log.await(t, "wait="+wait); !strings.Contains(got, "is down and starts again") {
			t.Errorf("it says %s", got)
		}
	}
	if r.Ready() {
		t.Error("it is ready on another's port")
	}
	taken.Close()
	r.up()
}

func signal(t *testing.T, c *child, s unix.Signal) {
	t.Helper()
	check.OK(t, unix.Kill(c.pid, s))
}
