package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

func TestDown_LeavesNothingOfAClusterWhoseProgramWasKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		if strings.Contains(","+os.Getenv("HOLDFAST_REQUIRE")+",", ",root,") {
			t.Fatal("HOLDFAST_REQUIRE names root, and this process has not got it")
		}
		t.Skip("needs root: it makes a cluster")
	}
	if testing.Short() {
		t.Skip("makes a cluster several times; run without -short")
	}
	program := filepath.Join(t.TempDir(), "cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster := func(ctx context.Context, command ...string) *exec.Cmd {
		return exec.CommandContext(ctx, program, append([]string{"-name", "killed"}, command...)...)
	}
	down := func() {
		t.Helper()
		if out, err := cluster(context.Background(), "down").CombinedOutput(); err != nil {
			t.Errorf("down: %v: %s", err, out)
		}
	}
	t.Cleanup(down)
	for _, step := range []string{"claim a network", "network", "mounts", "etcd", "kube-apiserver", "containerd", "kubelet", "node node1"} {
		killAfter(t, cluster(t.Context(), "up"), step)
		down()
		for _, trace := range traces(t) {
			t.Errorf("killed after step %s, there is still %s", step, trace)
		}
	}

	user := exec.CommandContext(t.Context(), "sleep", "infinity")
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	after := cluster(t.Context(), "down-after", strconv.Itoa(user.Process.Pid))
	if err := after.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster(t.Context(), "up").CombinedOutput(); err != nil {
		t.Errorf("up: %v: %s", err, out)
	}
	if len(traces(t)) == 0 {
		t.Error("it went before who uses it")
	}
	_ = user.Process.Kill()
	_ = user.Wait() // killed
	if err := after.Wait(); err != nil {
		t.Errorf("down-after: %v", err)
	}
	for _, trace := range traces(t) {
		t.Errorf("its processes were killed, and there is still %s", trace)
	}
}

// killAfter runs a command and kills it when it says that a step is done.
func killAfter(t *testing.T, up *exec.Cmd, step string) {
	t.Helper()
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	seen := false
	for lines := bufio.NewScanner(out); !seen && lines.Scan(); {
		seen = strings.HasPrefix(lines.Text(), "== "+step+" ")
	}
	_ = up.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = up.Wait() // killed
	if !seen {
		t.Fatalf("up never said that %s is done", step)
	}
}

// traces finds what a cluster of that name has left on this machine.
func traces(t *testing.T) (found []string) {
	t.Helper()
	c := newCluster(t, defaultBase, "killed")
	if _, err := os.Stat(c.Dir); err == nil {
		found = append(found, c.Dir)
	}
	if linked(c.link()) {
		found = append(found, "interface "+c.link())
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(c.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		found = append(found, "mount "+m.Mountpoint)
	}
	points, err := host.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range points {
		if _, err := os.Stat(filepath.Join(point, c.cgroup())); err == nil {
			found = append(found, "cgroup in "+point)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), c.Dir+"/") {
			found = append(found, "process "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
