package kube

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Exec runs a command in the first container of one of the test's pods and returns what it printed.
func (s *Space) Exec(pod string, command ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	return check.Got(s.ExecIn(ctx, s.Namespace, pod, "", command...))(s.t)
}

// ExecIn runs a command in a container, the default one if none is named. A command that fails is
// exec.CodeExitError, with what it said in the error.
func (c *Cluster) ExecIn(ctx context.Context, namespace, pod, container string, command ...string) (string, error) {
	url := c.Client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	web, err := remotecommand.NewWebSocketExecutor(c.config, "GET", url.String())
	if err != nil {
		return "", err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", url)
	if err != nil {
		return "", err
	}
	executor, err := remotecommand.NewFallbackExecutor(web, spdy, httpstream.IsUpgradeFailure)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		return out.String(), fmt.Errorf("%q in pod %s: %w: %s", command, pod, err, errs.String())
	}
	return out.String(), nil
}
