package kube

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Suspend stops a component of the control plane where it is, so that its clients get no answer, until resume or
// the end of the test.
func (s *Space) Suspend(component string) (resume func()) {
	s.t.Helper()
	s.NeedMachines("to suspend " + component)
	pid := s.pidOf(component)
	var once sync.Once
	resume = func() {
		once.Do(func() {
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				s.t.Error(fmt.Errorf("resuming %s: %w", component, err))
			}
		})
	}
	s.t.Cleanup(resume)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		s.t.Fatal(fmt.Errorf("suspending %s: %w", component, err))
	}
	return resume
}

// pidOf finds the process of a component of the control plane.
func (s *Space) pidOf(component string) int {
	s.t.Helper()
	said, err := s.Do(s.t.Context(), "status")
	if err != nil {
		said = err.Error() // which says the same of all: another component may not be ready just now
	}
	found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(component) + `\s.*\bpid (\d+)`).FindStringSubmatch(said)
	if found == nil {
		s.t.Fatalf("no process of %s is in:\n%s", component, said)
	}
	pid := check.Got(strconv.Atoi(found[1]))(s.t)
	return pid
}

// Processes returns a function that finds the processes of a program in a pod on this machine, without asking the API
// server.
func (s *Space) Processes(pod *corev1.Pod, program string) func() []int {
	s.t.Helper()
	s.NeedMachines("to see the processes of a pod")
	status := pod.Status.ContainerStatuses[0]
	return func() (pids []int) {
		for _, pid := range s.processes(status) {
			name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
			if err == nil && string(bytes.TrimSpace(name)) == program {
				pids = append(pids, pid)
			}
		}
		return pids
	}
}
