// Package host is what a cluster takes from the machine it runs on: processes, cgroups, a network namespace, mounts.
// Everything here can be found again by name after a crash, so that it can be removed.
package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Run runs a program and returns what it printed; an error carries what the program said on stderr.
func Run(ctx context.Context, argv ...string) (string, error) {
	return run(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// RunInput is Run with text on stdin.
func RunInput(ctx context.Context, input string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(input)
	return run(cmd)
}

// run asks the program to end when we are killed. It would be signalled when the thread that started it ends, so the thread
// stays.
func run(cmd *exec.Cmd) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
