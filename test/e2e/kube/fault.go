package kube

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"golang.org/x/sys/unix"
)

// System is the namespace that Holdfast is installed in.
const System = "holdfast-system"

// Holdfast is a client of one of Holdfast's own kinds, such as volumes.
func (c *Cluster) Holdfast(resource string) dynamic.NamespaceableResourceInterface {
	return c.Dynamic.Resource(schema.GroupVersionResource{Group: "holdfast.dev", Version: "v1", Resource: resource})
}

// Pools is the directory of the cluster's pools on this machine, which is the first node.
func (c *Cluster) Pools() string { return filepath.Join(c.dir, "pools") }

// Kill ends the processes of a container by SIGKILL in all of Holdfast's pods of a component that run on this machine,
// and returns how many it ended.
func (s *Space) Kill(component, container string) (killed int) {
	s.t.Helper()
	pods, err := s.Client.CoreV1().Pods(System).List(s.t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=" + component, FieldSelector: "spec.nodeName=" + s.Home,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == container && status.State.Running != nil {
				killed += s.killProcesses(status)
			}
		}
	}
	return killed
}

func (s *Space) killProcesses(status corev1.ContainerStatus) (killed int) {
	s.t.Helper()
	for _, pid := range s.processes(status) {
		if unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// processes finds those of a container that run on this machine by their cgroup, which has the container's id in its
// name.
func (s *Space) processes(status corev1.ContainerStatus) (pids []int) {
	s.t.Helper()
	_, id, _ := strings.Cut(status.ContainerID, "://")
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil || id == "" {
		s.t.Fatalf("container %q: %v", status.ContainerID, err)
	}
	for _, file := range groups {
		content, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(content, []byte(id)) {
			continue // or it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart ends a component of the control plane and starts it again.
func (s *Space) Restart(component string) {
	s.t.Helper()
	if _, err := s.Do(s.t.Context(), "restart", component); err != nil {
		s.t.Fatal(fmt.Errorf("restart of %s: %w", component, err))
	}
}
