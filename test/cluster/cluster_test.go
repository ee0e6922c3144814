package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
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
