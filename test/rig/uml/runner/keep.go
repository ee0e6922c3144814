package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// keep runs a machine until it ends or our standard input does, which is when our owner closes it or dies. Then it
// removes the directory. We are the first of a process namespace, so that all that the machine consists of ends with
// us. The machine itself cannot be the first: it could not abort.
func keep(dir string, argv []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	released := make(chan struct{})
	go func() {
		defer close(released)
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, it ended
		cancel()
	}()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"boot-in-session", dir}, argv...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Run()
	if _, died := errors.AsType[*exec.ExitError](err); died { // what it printed says why
		err = nil
	}
	os.Stdout.Close() // shows the owner that the machine is off and its output can be read
	<-released
	return errors.Join(err, os.RemoveAll(dir))
}
