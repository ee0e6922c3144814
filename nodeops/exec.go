// Package nodeops is everything that touches a host: mounts, loop devices, file systems, quotas, freezing, copying.
//
// It knows nothing of volumes or pools: callers hand it paths, and it never invents one. What a system call does is
// done by system call; commands run in one place only.
package nodeops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// lingering bounds the wait for the output of a killed command whose children hold its pipes.
const lingering = 5 * time.Second

// run returns what a command wrote to its standard output. The error holds what it wrote to standard error, and is
// ENOSPC where the command says so, and the context's own where that ended it.
func run(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = lingering
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	said := brief(stderr.String())
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("this host has no %s; install the package that has it: %w", name, err)
	case strings.Contains(strings.ToLower(said), unix.ENOSPC.Error()):
		err = fmt.Errorf("%w: %w", unix.ENOSPC, err)
	}
	return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
}

// brief leaves the list of all options out, with which some commands bury what they complain about.
func brief(stderr string) string {
	const most = 2000
	said, _, _ := strings.Cut(stderr, "\nUsage:")
	if len(said) > most {
		said = said[:most] + "..."
	}
	return strings.TrimSpace(said)
}

// begin starts a command in a session of its own, which outlives this process, with one more open file, its descriptor 3.
// The caller must Wait for it.
func begin(stdin, inherited *os.File, name string, args ...string) (*exec.Cmd, io.Reader, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = environment()
	cmd.Stdin, cmd.ExtraFiles = stdin, []*os.File{inherited}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, stdout, cmd.Start()
}

// environment makes commands speak one language.
func environment() []string {
	return append(os.Environ(), "LC_ALL=C")
}

// commands runs what mount-utils wants to run, ended with a context.
type commands struct {
	utilexec.Interface
	ctx context.Context
}

func newCommands(ctx context.Context) utilexec.Interface {
	return &commands{Interface: utilexec.New(), ctx: ctx}
}

func (c *commands) Command(name string, args ...string) utilexec.Cmd {
	cmd := c.CommandContext(c.ctx, name, args...)
	cmd.SetEnv(environment())
	return cmd
}
