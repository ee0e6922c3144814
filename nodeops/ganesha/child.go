package ganesha

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	processes "github.com/holdfast-storage/holdfast/nodeops/child"
)

// child is a process that ends with this one. It has a process group of its own, so that signals to ours do not reach
// it.
type child struct {
	name string
	pid  int
	done chan struct{} // closed when it has exited
	err  error         // its exit status, once done is closed
}

const (
	// outputWait limits the wait for the output of a child that has exited.
	outputWait = 5 * time.Second

	// killWait limits the wait for the exit of a child that was killed. On a busy host, the kernel takes seconds to close
	// dbus-daemon's inotify watches.
	killWait = time.Minute
)

// startChild starts a command whose output goes to the writers, which must not block for long.
func startChild(stdout, stderr io.Writer, env []string, name string, args ...string) (*child, error) {
	cmd := exec.Command(name, args...) //nolint:noctx // end sends SIGTERM first, and then kills it
	cmd.Env = append(os.Environ(), append(env, "LC_ALL=C")...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, outputWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended, err := processes.Start(cmd)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("this host has no %s; install the package that has it: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", strings.Join(cmd.Args, " "), err)
	}
	c := &child{name: name, pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		c.err = <-ended
		close(c.done)
	}()
	return c, nil
}

// exitError returns how a child has exited.
func (c *child) exitError() error {
	if c.err == nil {
		return fmt.Errorf("%s has ended by itself", c.name)
	}
	return fmt.Errorf("%s has ended: %w", c.name, c.err)
}

// end sends SIGTERM, and kills the child after the limit; with a limit of 0 it kills at once.
func (c *child) end(limit time.Duration) error {
	if limit > 0 {
		_ = unix.Kill(c.pid, unix.SIGTERM) // Wait has not returned, so the pid is not reused
		select {
		case <-c.done:
			return nil
		case <-time.After(limit):
		}
	}
	if err := c.kill(killWait); err != nil {
		return err
	}
	if limit > 0 {
		return fmt.Errorf("%s has not stopped within %s and was killed", c.name, limit)
	}
	return nil
}

// kill kills the child and waits for its exit.
func (c *child) kill(limit time.Duration) error {
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	select {
	case <-c.done:
		return nil
	case <-time.After(limit):
		place, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", c.pid)) // may be empty
		return fmt.Errorf("process %d, %s, was killed %s ago and still exists: it waits in the kernel, in %q; see the kernel's log", c.pid, c.name, limit, place)
	}
}
