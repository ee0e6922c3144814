package kube

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"golang.org/x/sys/unix"

	holdfast "github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// System is the namespace that Holdfast is installed in.
const System = "holdfast-system"

// Holdfast is a client of one of Holdfast's own kinds, such as volumes.
func (c *Cluster) Holdfast(resource string) dynamic.NamespaceableResourceInterface {
	return c.Dynamic.Resource(schema.GroupVersionResource{Group: "holdfast.dev", Version: "v1beta1", Resource: resource})
}

// Pools is the directory of the cluster's pools on this machine, which is the first node.
func (s *Space) Pools() string {
	s.t.Helper()
	s.NeedMachines("to read the pools on the disk of the first node")
	return filepath.Join(s.dir, "pools")
}

// Kill ends the processes of a container of one of Holdfast's pods by SIGKILL, on whatever node, as soon as it runs. One
// that ends by itself before does not count: that nothing was killed fails the test.
func (s *Space) Kill(pod *corev1.Pod, container string) {
	s.t.Helper()
	for tried := ""; ; {
		status := s.otherThan(tried, pod, container)
		killed := 0
		if pod.Spec.NodeName == s.Home && !s.given {
			killed += s.killHere(status)
		} else {
			killed += s.killAfar(pod.Spec.NodeName, status)
		}
		if killed > 0 {
			s.t.Logf("killed %d processes of container %s of pod %s on %s", killed, container, pod.Name, pod.Spec.NodeName)
			return
		}
		tried = status.ContainerID
	}
}

// otherThan waits until a pod runs a container that has not been tried, and returns its status.
func (s *Space) otherThan(tried string, pod *corev1.Pod, container string) (status corev1.ContainerStatus) {
	s.t.Helper()
	AwaitOne(s, s.Client.CoreV1().Pods(System), pod.Name, "to run container "+container+" with a process to be killed", func(p *corev1.Pod) (bool, error) {
		i := slices.IndexFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.Name == container && c.State.Running != nil && c.ContainerID != tried
		})
		if i >= 0 {
			status = p.Status.ContainerStatuses[i]
		}
		return i >= 0, nil
	})
	return status
}

func (s *Space) killHere(status corev1.ContainerStatus) (killed int) {
	s.t.Helper()
	for _, pid := range s.processes(status) {
		if unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// killer does what killHere does, in a pod that sees the processes of its node.
const killer = `
	killed=0
	for group in /proc/[0-9]*/cgroup; do
		if grep -qs $ID $group; then
			pid=${group#/proc/}
			if kill -9 ${pid%/cgroup}; then killed=$((killed + 1)); fi
		fi
	done
	echo $killed`

func (s *Space) killAfar(node string, status corev1.ContainerStatus) int {
	s.t.Helper()
	system := &Space{Cluster: s.Cluster, Namespace: System, Home: s.Home, t: s.t}
	name := "e2e-killer-" + rand.String(8)
	s.t.Cleanup(func() {
		err := s.Client.CoreV1().Pods(System).Delete(context.WithoutCancel(s.t.Context()), name, metav1.DeleteOptions{})
		check.Report(s.t, holdfast.IgnoreNotFound(err))
	})
	said := system.Run(name, OnNode(node), withHostProcesses, Env("ID", containerID(status)), Script(killer))
	system.DeletePod(name)
	return check.Got(strconv.Atoi(strings.TrimSpace(said)))(s.t)
}

// withHostProcesses lets a pod see and kill what runs on its node.
func withHostProcesses(p *corev1.Pod) {
	p.Spec.HostPID, p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = true, nil, nil
}

func containerID(status corev1.ContainerStatus) string {
	_, id, _ := strings.Cut(status.ContainerID, "://")
	return id
}

// processes finds those of a container that run on this machine by their cgroup, which has the container's id in its
// name.
func (s *Space) processes(status corev1.ContainerStatus) (pids []int) {
	s.t.Helper()
	id := containerID(status)
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

// Leader waits until a pod of Holdfast that is not ending renews a Lease, and returns the pod. One that was killed has
// renewed it for the last time.
func (s *Space) Leader(lease string) *corev1.Pod {
	s.t.Helper()
	since := time.Now()
	var leader *corev1.Pod
	AwaitOne(s, s.Client.CoordinationV1().Leases(System), lease, "to be renewed by a pod that runs", func(l *coordinationv1.Lease) (bool, error) {
		if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(since) {
			return false, nil
		}
		var err error
		leader, err = s.Client.CoreV1().Pods(System).Get(s.t.Context(), *l.Spec.HolderIdentity, metav1.GetOptions{})
		return err == nil && leader.DeletionTimestamp == nil, nil
	})
	return leader
}

// Restart ends a component of the control plane and starts it again.
func (s *Space) Restart(component string) {
	s.t.Helper()
	s.NeedMachines("to restart " + component)
	check.Got(s.Do(s.t.Context(), "restart", component))(s.t)
}
