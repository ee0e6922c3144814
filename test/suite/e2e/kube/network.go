package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// portTable drops what comes to a port from elsewhere, and what leaves it.
const portTable = `chain in { type filter hook input priority 0; iif != "lo" tcp dport %[1]d drop; }; ` +
	`chain out { type filter hook output priority 0; oif != "lo" tcp sport %[1]d drop; };`

// CutPort has all packets between a TCP port of a pod of the home node and the rest of the world lost, and returns what
// lets them through again. The pod itself reaches its port. The end of the test lets them through if the test has not.
func (s *Space) CutPort(pod string, port int) (mend func()) {
	s.t.Helper()
	return s.cut(s.networkOf(pod), "e2e-cut", fmt.Sprintf(portTable, port))
}

// cut gives a table of rules to the packet filter of a network, and returns what takes them away again. They belong to a process of
// the test, and go with it.
func (s *Space) cut(network *os.File, table, rules string) (mend func()) {
	s.t.Helper()
	inNetwork := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", "nft"}, args...)...)
		cmd.ExtraFiles = []*os.File{network}
		return cmd
	}
	cmd := inNetwork(context.WithoutCancel(s.t.Context()), "--interactive")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	check.OK(s.t, err)
	ended := sync.OnceValue(func() error { return errors.Join(input.Close(), cmd.Wait(), network.Close()) })
	s.t.Cleanup(func() { check.Report(s.t, ended()) })
	check.Got(fmt.Fprintf(input, "table ip %s { flags owner; %s }\n", table, rules))(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	if err := Until(ctx, func(ctx context.Context) error {
		out, err := inNetwork(ctx, "list", "table", "ip", table).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		s.t.Fatalf("the packet filter lacks the table %s: %v; nft: %s", table, errors.Join(err, ended()), &said)
	}
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
