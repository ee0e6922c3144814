package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/tool/cluster/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == host.Entry {
		_ = host.Become(os.Args[2])
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newCluster(t *testing.T, base, name string) *Cluster {
	t.Helper()
	c, err := NewCluster(base, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestName_MustFitIntoPathsAndCgroups(t *testing.T) {
	for name, ok := range map[string]bool{
		"holdfast": true, "a": true, "a-1": true, "": false, "..": false, "A": false, "-a": false, "a-": false, "a/b": false,
		strings.Repeat("a", 31): false,
	} {
		if _, err := NewCluster("/base", name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestClusters_OfOneNameInTwoDirectoriesShareNothing(t *testing.T) {
	a, b := newCluster(t, "/a", "x"), newCluster(t, "/b", "x")
	if a.cgroup() == b.cgroup() || a.link() == b.link() || a.claimFile() == b.claimFile() {
		t.Errorf("%s %s, %s %s", a.cgroup(), b.cgroup(), a.link(), b.link())
	}
	if len(a.link()) > 15 {
		t.Errorf("%s is too long for an interface", a.link())
	}
}

func TestState_IsReadAsItWasWritten(t *testing.T) {
	base := t.TempDir()
	c := newCluster(t, base, "x")
	if err := c.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("error %v", err)
	}
	c.State = State{Network: 150, KubeletRoot: "/k", Nodes: []Node{{Name: "node1", Number: 1}}}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	again := newCluster(t, base, "x")
	if err := again.Load(); err != nil || again.State.Network != 150 || again.State.Nodes[0].address(again) != "10.150.0.1" {
		t.Errorf("state %+v, error %v", again.State, err)
	}
}

func TestNodes_AreNumberedUntilTheirNetworkIsFull(t *testing.T) {
	c := newCluster(t, t.TempDir(), "x")
	c.State = State{Network: 150}
	for range mostNodes {
		n, err := c.nextNode()
		if err != nil {
			t.Fatal(err)
		}
		c.State.Nodes = append(c.State.Nodes, n)
	}
	first, last := c.State.Nodes[0], c.State.Nodes[mostNodes-1]
	if !first.machine() || last.machine() || last.podCIDR(c) != "10.150.228.0/24" {
		t.Errorf("the first is %+v, the last %+v with pods in %s", first, last, last.podCIDR(c))
	}
	if n, err := c.nextNode(); err == nil {
		t.Errorf("and then comes %+v", n)
	}
}

func TestPower_OnlyGuestsCanBeSwitchedOff(t *testing.T) {
	c := newCluster(t, t.TempDir(), "x")
	c.State = State{Network: 150, Nodes: []Node{{"node1", 1}, {"node2", 2}}}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.guestNamed("node2"); err != nil || n.Number != 2 {
		t.Errorf("node2 is %+v, %v", n, err)
	}
	for name, want := range map[string]string{"node1": "is this machine", "node3": "there are: node2"} {
		if _, err := c.guestNamed(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func address(t *testing.T, cidr string) net.Addr {
	t.Helper()
	ip, ipnet, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	ipnet.IP = ip
	return ipnet
}

func TestNetwork_TakenOneIsSkipped(t *testing.T) {
	addresses := []net.Addr{address(t, "10.131.4.5/16"), address(t, "10.132.0.1/14"), address(t, "192.0.2.1/24")}
	got, err := freeNetwork(2, []claim{{Network: 130}}, addresses)
	if err != nil || got != 136 { // 130 is claimed, 131 has an address, 132 to 135 are one network of the machine
		t.Errorf("network %d, error %v", got, err)
	}
	if got, err := freeNetwork(95, []claim{{Network: 223}}, nil); err != nil || got != 128 {
		t.Errorf("after the last comes %d, error %v", got, err)
	}
	if _, err := freeNetwork(0, nil, []net.Addr{address(t, "10.0.0.1/8")}); err == nil {
		t.Error("a network of the machine was given away")
	}
}

func TestKubeletDirectory_OnlyOneClusterHasTheDefault(t *testing.T) {
	root := filepath.Join(t.TempDir(), "kubelet")
	c := newCluster(t, "/base", "x")
	if got := c.freeKubeletRoot(root, nil); got != root {
		t.Errorf("the first gets %s", got)
	}
	if got := c.freeKubeletRoot(root, []claim{{KubeletRoot: root}}); got != "/base/x/kubelet" {
		t.Errorf("the second gets %s", got)
	}
	if err := os.MkdirAll(filepath.Join(root, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := c.freeKubeletRoot(root, nil); got != "/base/x/kubelet" {
		t.Errorf("beside a kubelet of the machine it gets %s", got)
	}
}

func TestKubeletDirectory_LastClusterLeavesNothingInTheDefault(t *testing.T) {
	root := filepath.Join(t.TempDir(), "kubelet")
	has := func(claimed []claim, want ...string) {
		t.Helper()
		if err := newCluster(t, "/base", "x").removeDefaultKubelet(root, claimed); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(root + "/*") // the pattern is well formed
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		if !slices.Equal(found, want) {
			t.Errorf("with %+v it has %v, want %v", claimed, found, want)
		}
	}
	for _, dir := range []string{"device-plugins", "pods"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	other := claim{Dir: "/base/y", KubeletRoot: root, DefaultOurs: true}
	has([]claim{{Dir: "/base/x", KubeletRoot: "/base/x/kubelet"}}, "device-plugins", "pods") // those of the machine's own
	has([]claim{{Dir: "/base/x", KubeletRoot: "/base/x/kubelet", DefaultOurs: true}, other}, "device-plugins", "pods")
	other.KubeletRoot = "/base/y/kubelet"
	has([]claim{{Dir: "/base/x", KubeletRoot: root, DefaultOurs: true}, other}, "device-plugins")
	has([]claim{{Dir: "/base/x", KubeletRoot: "/base/x/kubelet", DefaultOurs: true}})
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", root, err)
	}
}

func TestStep_FailureHasItsNameAndReason(t *testing.T) {
	var out bytes.Buffer
	steps := Steps{&out}
	if err := steps.Do(t.Context(), "first", quiet(func(context.Context) error { return nil })); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no disk")
	err := steps.Do(t.Context(), "second", quiet(func(context.Context) error { return cause }))
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "second") {
		t.Errorf("error %v", err)
	}
	if text := out.String(); !strings.Contains(text, "== first") || !strings.Contains(text, "!! second") {
		t.Errorf("the text is %q", text)
	}
}

func TestComponent_ThatEndsAtOnceFailsWithTheEndOfItsLog(t *testing.T) {
	c := newCluster(t, t.TempDir(), "x")
	d := component{"short", []string{"sh", "-c", "echo the reason; exit 1"}, func(context.Context) error { return errors.New("not yet") }}
	_, err := c.launch(t.Context(), d, host.Daemon{Argv: d.argv, Log: c.log(d.name), Record: c.record(d.name)})
	if err == nil || !strings.Contains(err.Error(), "it has ended") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("error %v", err)
	}
}

func TestComponent_IsStartedOnceAndStoppedByItsRecord(t *testing.T) {
	c := newCluster(t, t.TempDir(), "x")
	d := component{"long", []string{"sleep", "1000"}, func(context.Context) error { return nil }}
	t.Cleanup(func() { _ = c.stop(context.Background(), d.name, 0) })
	var said [2]string
	for i := range said {
		var err error
		said[i], err = c.launch(t.Context(), d, host.Daemon{Argv: d.argv, Log: c.log(d.name), Record: c.record(d.name)})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, first, _ := strings.Cut(said[0], "pid")
	_, second, _ := strings.Cut(said[1], "pid")
	if first != second {
		t.Errorf("first %q, then %q", said[0], said[1])
	}
	process, err := host.ReadProcess(c.record(d.name))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to stop
		if err := c.stop(t.Context(), d.name, stopGrace); err != nil {
			t.Fatal(err)
		}
	}
	if process.Alive() {
		t.Error("it still runs")
	}
}
