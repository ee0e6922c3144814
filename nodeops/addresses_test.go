package nodeops

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestAddresses_IncludeThoseOfBridgesAndTunnels(t *testing.T) {
	hostfs.RequireRoot(t)
	dir := otherNetwork(t,
		"ip link add br0 type bridge", "ip addr add 10.9.8.1/24 dev br0", "ip addr add fd00:9::1/64 dev br0", "ip link set br0 up",
		"ip link add down0 type bridge", "ip addr add 10.96.0.10/32 dev down0", // as kube-proxy in IPVS mode has it
		"ip link add local0 type bridge", "ip addr add 169.254.20.10/32 dev local0", "ip link set local0 up", "ip link set lo up",
	)
	got, err := HostAddresses(dir)
	want := []netip.Addr{netip.MustParseAddr("10.9.8.1"), netip.MustParseAddr("fd00:9::1")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("they are %v, %v", got, err)
	}
	if own, err := HostAddresses(""); err != nil || slices.Contains(own, want[0]) {
		t.Errorf("those of this process are %v, %v", own, err)
	}
	check.Fails(t, check.ErrorOf(HostAddresses(t.TempDir())), nil)
}

// otherNetwork creates a network namespace, runs commands in it, and returns its directory in /proc.
func otherNetwork(t *testing.T, commands ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := dir + "/net"
	check.OK(t, os.WriteFile(file, nil, 0o600))
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- err
			return
		}
		made <- unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
	}()
	check.OK(t, <-made)
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	for _, c := range commands {
		if out, err := exec.CommandContext(t.Context(), "nsenter", "--net="+file, "sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	return dir
}
