package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCgroup_RemovalEndsEveryProcessBeneathItAndNoOther(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("hfc-test-%d", os.Getpid())
	if err := MakeCgroup(name + "/daemons"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := RemoveCgroup(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	d := daemon(t, "sh", "-c", "sleep 1000 & exec sleep 1000")
	d.Cgroup = name + "/daemons"
	p, err := Start(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := Identify(sleeper(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := CgroupProcesses(name)
	if err != nil || !slices.Contains(pids, p.PID) || slices.Contains(pids, stranger.PID) {
		t.Fatalf("processes %v, error %v; %d belongs, %d does not", pids, err, p.PID, stranger.PID)
	}
	if err := RemoveCgroup(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if p.Alive() || !stranger.Alive() {
		t.Errorf("the daemon is alive: %t; the stranger is alive: %t", p.Alive(), stranger.Alive())
	}
	points, err := Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range points {
		if _, err := os.Stat(filepath.Join(point, name)); err == nil {
			t.Errorf("%s is left", filepath.Join(point, name))
		}
	}
}

func TestCgroup_HasTheCPUOfAsManyProcessesAsItIsGiven(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("hfc-test-weight-%d", os.Getpid())
	t.Cleanup(func() {
		if err := RemoveCgroup(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(MakeCgroup(name), WeighCgroup(name, 3)); err != nil {
		t.Fatal(err)
	}
	points, err := Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	weights := map[string]string{}
	for _, point := range points {
		for _, file := range []string{"cpu.shares", "cpu.weight"} {
			if b, err := os.ReadFile(filepath.Join(point, name, file)); err == nil {
				weights[file] = strings.TrimSpace(string(b))
			}
		}
	}
	if !maps.Equal(weights, map[string]string{"cpu.shares": "3072"}) && !maps.Equal(weights, map[string]string{"cpu.weight": "300"}) {
		t.Errorf("the group has %v", weights)
	}
}

// A program that was killed while it started a daemon leaves one that is about to join. A mount keeps the removal from
// ending before it has.
func TestCgroup_ProcessThatJoinsDuringRemovalEndsWithIt(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("hfc-test-%d", os.Getpid())
	for _, group := range []string{name + "/held", name + "/idle"} {
		if err := MakeCgroup(group); err != nil {
			t.Fatal(err)
		}
	}
	points, err := Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(points[0], name)
	if err := unix.Mount("tmpfs", filepath.Join(group, "held"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	release := sync.OnceValue(func() error { return unix.Unmount(filepath.Join(group, "held"), 0) })
	t.Cleanup(func() { _ = release() })
	removed := make(chan error, 1)
	go func() { removed <- RemoveCgroup(t.Context(), name) }()
	begun := func() error {
		if _, err := os.Stat(filepath.Join(group, "idle")); err == nil {
			return errors.New("the removal has not begun")
		}
		return nil
	}
	if err := Until(t.Context(), 10*time.Second, begun); err != nil {
		t.Fatal(err)
	}
	late := strconv.Itoa(sleeper(t).Process.Pid)
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(late), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

func TestCgroup_RootIsNeverRemoved(t *testing.T) {
	for _, name := range []string{"", ".", "../x"} {
		if RemoveCgroup(t.Context(), name) == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestDaemon_RunsInItsNetworkNamespace(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "netns")
	for range 2 { // the second finds the first
		if err := MakeNetNS(file); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := RemoveNetNS(file); err != nil {
			t.Error(err)
		}
	})
	d := daemon(t, "sleep", "1000")
	d.NetNS = file
	p, err := Start(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background(), 0) })
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil || ours == theirs {
		t.Errorf("our namespace is %s, theirs %s, error %v", ours, theirs, err)
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	at, err := os.Stat(file)
	if err != nil || !os.SameFile(info, at) {
		t.Errorf("the daemon is not in the namespace of the file: %v", err)
	}
}
