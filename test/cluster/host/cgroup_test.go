package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
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

func TestCgroup_RootIsNeverRemoved(t *testing.T) {
	for _, name := range []string{"", ".", "../x"} {
		if RemoveCgroup(t.Context(), name) == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
