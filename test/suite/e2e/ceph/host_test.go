package ceph

import (
	"os"
	"strings"
)

// hasClients says whether the kernel of this machine, which is that of the first node, has the clients of Ceph.
func hasClients() bool {
	_, rbd := os.Stat("/sys/bus/rbd")
	known, err := os.ReadFile("/proc/filesystems")
	return rbd == nil || err == nil && strings.Contains(string(known), "\tceph\n")
}
