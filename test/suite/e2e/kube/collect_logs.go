package kube

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	logLines = 20_000  // of each container
	logBytes = 1 << 20 // of each component

	// logTime is short because there may be no node that answers.
	logTime = 10 * time.Second
)

// logs adds the logs of all containers of a namespace, and of those that ran before them.
func (f *folder) logs(namespace string) {
	pods, err := f.Client.CoreV1().Pods(namespace).List(f.ctx, metav1.ListOptions{})
	if err != nil {
		f.failed("pods in "+namespace, err)
		return
	}
	for _, pod := range pods.Items {
		dir := filepath.Join("logs", namespace, pod.Name)
		status := pod.Status
		for _, container := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses) {
			if container.ContainerID != "" {
				f.log(filepath.Join(dir, container.Name+".log"), pod, &corev1.PodLogOptions{Container: container.Name})
			}
			if container.RestartCount > 0 {
				f.log(filepath.Join(dir, container.Name+".previous.log"), pod, &corev1.PodLogOptions{Container: container.Name, Previous: true})
			}
		}
	}
}

func (f *folder) log(path string, pod corev1.Pod, options *corev1.PodLogOptions) {
	options.Timestamps, options.TailLines = true, new(int64(logLines))
	f.add(path, func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(f.ctx, logTime)
		defer cancel()
		return f.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	})
}

// components adds the ends of the logs of what the cluster itself consists of, on all of its nodes.
func (f *folder) components() {
	if f.given {
		return // they are on machines out of reach
	}
	for _, pattern := range []string{"logs/*.log", "nodes/*/*.log", "nodes/*/logs/*.log"} {
		paths, _ := filepath.Glob(filepath.Join(f.Cluster.dir, pattern)) // the pattern is well formed
		for _, path := range paths {
			name := strings.TrimPrefix(path, f.Cluster.dir)
			f.add(filepath.Join("components", name), func() ([]byte, error) { return tail(path, logBytes) })
		}
	}
}

func tail(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-limit), limit))
}

// events adds what happened in the namespaces as one list.
func (f *folder) events(namespaces ...string) {
	f.add("events.txt", func() ([]byte, error) {
		var all []corev1.Event
		var failures []error
		for _, namespace := range namespaces {
			events, err := f.Client.CoreV1().Events(namespace).List(f.ctx, metav1.ListOptions{})
			failures = append(failures, err)
			if err == nil {
				all = append(all, events.Items...)
			}
		}
		if err := errors.Join(failures...); err != nil {
			f.failed("events", err)
		}
		return []byte(strings.Join(append(eventLines(all), ""), "\n")), nil
	})
}
