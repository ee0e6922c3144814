package hostfs

import (
	"net"
	"net/netip"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// FreePort returns a TCP port of this host on which nothing listens.
func FreePort(t testing.TB) uint16 {
	t.Helper()
	free := check.Got(new(net.ListenConfig).Listen(t.Context(), "tcp", ":0"))(t)
	defer free.Close()
	return free.Addr().(*net.TCPAddr).AddrPort().Port()
}

// FreeAddress returns 127.0.0.1 with a free port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), FreePort(t)).String()
}
