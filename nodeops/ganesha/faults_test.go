package ganesha

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	r := runWith(t, c, one, two)
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

func TestServer_RecoversFromEachFaultWithAllDesiredExports(t *testing.T) {
	const impatient = 500 * time.Millisecond
	for name, fault := range map[string]struct {
		patience time.Duration // 0: that of the configuration
		harm     func(*process)
	}{
		"Ganesha dies":  {0, func(l *process) { signal(t, l.ganesha, unix.SIGKILL) }},
		"Ganesha hangs": {impatient, func(l *process) { signal(t, l.ganesha, unix.SIGSTOP) }},
		"the bus dies":  {0, func(l *process) { signal(t, l.bus, unix.SIGKILL) }},
		"the bus hangs": {impatient, func(l *process) { signal(t, l.bus, unix.SIGSTOP) }},
		"Ganesha exits": {0, func(l *process) {
			signal(t, l.ganesha, unix.SIGTERM)
			awaitEnd(t, l.ganesha) // it executes requests until then
		}},
		"Ganesha is out of descriptors": {impatient, func(l *process) {
			check.OK(t, unix.Prlimit(l.ganesha.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4, Max: 4}, nil))
			awaitEnd(t, l.ganesha)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t)
			c.Patience = cmp.Or(fault.patience, c.Patience)
			survives(t, c, fault.harm)
		})
	}
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
	fillUp(t, e.Path)
	r := runWith(t, c, e)
	r.kill()
	r.is(e)
}

// As on a node that was shut out of its Ceph cluster: another one may serve the volumes by now.
func TestServer_WhoseDiskTakesNoWritesEndsAtOnceAndServesWhenItDoesAgain(t *testing.T) {
	c := testConfig(t)
	c.RecoveryDir = hostfs.New(t, hostfs.Ext4, 16<<20)
	c.Interval = time.Hour
	r := runWith(t, c, newExport(t, 1))
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

func TestServer_FaultIsNoticedWithoutARequest(t *testing.T) {
	ganesha, bus := func(l *process) *child { return l.ganesha }, func(l *process) *child { return l.bus }
	for name, fault := range map[string]struct {
		of                 func(*process) *child
		with               unix.Signal
		interval, patience time.Duration
	}{
		"a hang":          {ganesha, unix.SIGSTOP, 50 * time.Millisecond, 500 * time.Millisecond},
		"a death":         {ganesha, unix.SIGKILL, time.Hour, time.Minute},
		"that of the bus": {bus, unix.SIGKILL, time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t)
			c.Interval, c.Patience = fault.interval, fault.patience
			r := runWith(t, c, newExport(t, 1))
			l := r.up()
			signal(t, fault.of(l), fault.with)
			awaitEnd(t, fault.of(l))
			if r.up() == l {
				t.Error("nothing was started again")
			}
		})
	}
}

// A change that Ganesha did not execute because of it must not be lost.
func TestServer_ChangeThatKillsGaneshaIsAppliedByTheNext(t *testing.T) {
	one, two := newExport(t, 1), newExport(t, 2)
	r := runWith(t, testConfig(t), one)
	l := r.up()
	signal(t, l.ganesha, unix.SIGSTOP)
	put := make(chan error, 1)
	go func() { put <- r.Put(r.within(), two) }()
	for recorded := 0; recorded < 2; runtime.Gosched() {
		r.mu.Lock()
		recorded = len(r.exports)
		r.mu.Unlock()
	}
	signal(t, l.ganesha, unix.SIGKILL)
	check.OK(t, <-put)
	r.is(one, two)
}

func TestServer_HangDuringAStopIsEnded(t *testing.T) {
	c := testConfig(t)
	c.StopLimit = 200 * time.Millisecond
	r := runWith(t, c)
	l := r.up()
	signal(t, l.ganesha, unix.SIGSTOP)
	r.stopWith(func(err error) {
		check.Fails(t, err, nil, "was killed")
	})
	if err := unix.Kill(l.ganesha.pid, 0); err != unix.ESRCH {
		t.Errorf("it still runs: %v", err)
	}
}

func TestServer_MissingProgramIsNamedAndStartedWhenInstalled(t *testing.T) {
	c := testConfig(t)
	log := hear(t, &c)
	bus := check.Got(exec.LookPath("dbus-daemon"))(t)
	path, bin := os.Getenv("PATH"), newExport(t, 1).Path
	t.Setenv("PATH", bin)
	r := runWith(t, c, newExport(t, 1))
	log.await(t, "this host has no dbus-daemon; install the package")
	check.OK(t, os.Symlink(bus, filepath.Join(bin, "dbus-daemon")))
	log.await(t, "this host has no ganesha.nfsd; install the package")
	t.Setenv("PATH", path)
	r.up()
	processes := check.Got(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	busses := slices.DeleteFunc(processes, func(file string) bool {
		line, err := os.ReadFile(file)
		return err != nil || !strings.Contains(string(line), filepath.Join(c.RunDir, "bus.conf"))
	})
	check.Same(t, len(busses), 1) // that of the server that is up
}

func TestServer_StopDuringAStartIsClean(t *testing.T) {
	for _, after := range []string{"", "Starting: Ganesha Version", "Now IN GRACE", "was started successfully"} {
		c := testConfig(t)
		log := hear(t, &c)
		r := runWith(t, c, newExport(t, 1))
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
	check.Same(t, strings.Join(waits, " "), "200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 30s 30s")
	check.Same(t, nextWait(wait, longLife+1), shortestWait)
}

func TestServer_WithATakenPortStartsWhenItIsFree(t *testing.T) {
	c := testConfig(t)
	log := hear(t, &c)
	taken := check.Got(net.Listen("tcp", fmt.Sprintf(":%d", c.Port)))(t)
	defer taken.Close()
	r := runWith(t, c, newExport(t, 1))
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

// kill kills the Ganesha that serves, and returns when it is dead.
func (r *running) kill() {
	r.t.Helper()
	l := r.up()
	signal(r.t, l.ganesha, unix.SIGKILL)
	<-l.ganesha.done
}
