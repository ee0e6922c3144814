package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// cutTable drops what comes to a port from elsewhere, and what leaves it.
const cutTable = `table ip e2e-cut {
	chain in { type filter hook input priority 0; iif != "lo" tcp dport %[1]d drop; }
	chain out { type filter hook output priority 0; oif != "lo" tcp sport %[1]d drop; }
}`

// CutPort has all packets between a TCP port of a pod of the home node and the rest of the world lost, and returns what
// lets them through again. The pod itself reaches its port. The end of the test lets them through if the test has not.
func (s *Space) CutPort(pod string, port int) (mend func()) {
	s.t.Helper()
	network := s.networkOf(pod)
	ended := sync.OnceValue(func() error {
		defer network.Close()
		return filter(context.WithoutCancel(s.t.Context()), network, "delete table ip e2e-cut")
	})
	s.t.Cleanup(func() { check.Report(s.t, ended()) })
	check.OK(s.t, filter(s.t.Context(), network, fmt.Sprintf(cutTable, port)))
	return func() {
		s.t.Helper()
		check.OK(s.t, ended())
	}
}

// networkOf opens the network of a pod of the home node, which stays as long as it is open, whatever its processes do.
func (s *Space) networkOf(pod string) *os.File {
	s.t.Helper()
	s.NeedMachines("to cut the network of a pod")
	for _, status := range s.Ready(pod).Status.ContainerStatuses {
		for _, pid := range s.processes(status) {
			if network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
				return network
			}
		}
	}
	s.t.Fatalf("pod %s has no process on this machine, which is node %s", pod, s.Home)
	return nil
}

// filter gives rules to the packet filter of a network.
func filter(ctx context.Context, network *os.File, rules string) error {
	cmd := exec.CommandContext(ctx, "nsenter", "--net=/proc/self/fd/3", "nft", "-f", "-")
	cmd.Stdin, cmd.ExtraFiles = strings.NewReader(rules), []*os.File{network}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("packet filter of %s: %w: %s", network.Name(), err, out)
	}
	return nil
}
