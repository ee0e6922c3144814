package kube

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Log is what the container of a pod has printed since it was started last.
func (s *Space) Log(pod string) string {
	s.t.Helper()
	return string(check.Got(s.Client.CoreV1().Pods(s.Namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(s.t.Context()))(s.t))
}

// Lines gives the lines that a pod prints, from the first one on, until the log or ctx ends. Only whole lines are
// given; those that have arrived can be read after the end of ctx.
func (s *Space) Lines(ctx context.Context, pod string) <-chan string {
	s.t.Helper()
	stream := check.Got(s.Client.CoreV1().Pods(s.Namespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx))(s.t)
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		defer stream.Close()
		for reader := bufio.NewReader(stream); ; {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case lines <- line[:len(line)-1]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// FirstLines waits until a running pod has printed so many lines; a pod may be ready before it has printed any.
func (s *Space) FirstLines(pod string, count int) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	var first []string
	for line := range s.Lines(ctx, pod) {
		if first = append(first, line); len(first) == count {
			return first
		}
	}
	s.t.Fatalf("pod %s has printed %q, and not %d lines", pod, first, count)
	return nil
}

// Holder is a script that appends a line at a time to /data/log, under a lock of /data/lock that it takes once, and prints
// each when it is on the server's disk.
const Holder = `flock /data/lock sh -ec '
	n=0; while sleep 0.2; do n=$((n+1)); echo $n >>/data/log; sync /data/log; echo $n; done'`

// Wrote is how many lines a pod has printed.
func (s *Space) Wrote(pod string) int {
	s.t.Helper()
	return strings.Count(s.Log(pod), "\n")
}

// AwaitLines waits until a pod has printed that many lines.
func (s *Space) AwaitLines(pod string, count int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	if !s.Eventually(ctx, "pod "+pod+" to write", func(context.Context) error {
		if n := s.Wrote(pod); n < count {
			return fmt.Errorf("it has written %d lines, not %d", n, count)
		}
		return nil
	}) {
		s.t.Fatal("the pod does not go on")
	}
}
