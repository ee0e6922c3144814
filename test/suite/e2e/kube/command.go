package kube

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// Kubeconfig is the path of the cluster's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Command is a command of an administrator: KUBECONFIG names the cluster, and kubectl is that of the cluster.
func (c *Cluster) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	if program == "kubectl" && c.dir != "" {
		program = filepath.Join(c.dir, "bin", program)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	return cmd
}

// Kubectl runs kubectl, also in a cleanup, and returns its output.
func (c *Cluster) Kubectl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	return c.logged(t, "kubectl", args...)
}

// MustKubectl fails the test if kubectl fails.
func (c *Cluster) MustKubectl(t testing.TB, args ...string) string {
	t.Helper()
	return must(t, "kubectl", args)(c.Kubectl(t, args...))
}

// RunHoldfast runs the tested program as a command, also in a cleanup, and returns its output.
func (c *Cluster) RunHoldfast(t testing.TB, args ...string) (string, error) {
	t.Helper()
	return c.logged(t, c.HoldfastProgram(t), args...)
}

// MustRunHoldfast fails the test if the command fails.
func (c *Cluster) MustRunHoldfast(t testing.TB, args ...string) string {
	t.Helper()
	return must(t, "holdfast", args)(c.RunHoldfast(t, args...))
}

// HoldfastProgram returns the path of the tested program, which is built once.
func (c *Cluster) HoldfastProgram(t testing.TB) string {
	t.Helper()
	c.building.Lock()
	defer c.building.Unlock()
	if c.scratch == "" {
		c.scratch = check.Got(os.MkdirTemp("", "holdfast-e2e-program-"))(t)
	}
	if c.holdfast == "" {
		c.holdfast = check.Got(standalone.Binary(context.WithoutCancel(t.Context()), c.scratch))(t)
	}
	return c.holdfast
}

func (c *Cluster) logged(t testing.TB, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	out, err := c.Command(ctx, program, args...).CombinedOutput()
	t.Logf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	return string(out), err
}

func must(t testing.TB, program string, args []string) func(string, error) string {
	t.Helper()
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
		}
		return out
	}
}
