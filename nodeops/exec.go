// Package nodeops has the operations on a host: mounts, loop devices, file systems, quotas, freezing, copying.
//
// It knows neither volumes nor pools: it works only on paths that callers pass. It prefers system calls to commands,
// and runs commands only here.
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
)

// pipeWait limits the wait for the output of a killed command whose children still hold its pipes.
const pipeWait = 5 * time.Second

// run returns the standard output of a command. The error contains its standard error; it is ENOSPC if the command
// reports that, and wraps the context's error if the context ended.
func run(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = pipeWait
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	said := withoutUsage(stderr.String())
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

// withoutUsage strips the usage text with which some commands surround an error.
func withoutUsage(stderr string) string {
	const most = 2000
	said, _, _ := strings.Cut(stderr, "\nUsage:")
	if len(said) > most {
		said = said[:most] + "..."
	}
	return strings.TrimSpace(said)
}

// startSession starts a command in a new session, which outlives this process, with one inherited file as descriptor 3.
// The caller must Wait for it.
func startSession(stdin, inherited *os.File, name string, args ...string) (*exec.Cmd, io.Reader, error) {
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

// environment gives commands the C locale.
func environment() []string {
	return append(os.Environ(), "LC_ALL=C")
}
