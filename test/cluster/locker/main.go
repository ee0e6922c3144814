// Command locker is flock in the images of pods, since Debian's busybox has none: flock [-n] FILE COMMAND... runs a
// command while it holds the file's lock. With -n it does not wait, and ends with 1 if another process has the lock; whatever
// else fails ends it with 2. Its own name keeps it from taking the place of this host's flock.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	err := run(os.Args[1:])
	switch {
	case err == nil:
		return
	case errors.Is(err, syscall.EWOULDBLOCK):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "flock:", err)
	os.Exit(2)
}

func run(args []string) error {
	how := syscall.LOCK_EX
	if len(args) > 0 && args[0] == "-n" {
		how, args = how|syscall.LOCK_NB, args[1:]
	}
	if len(args) < 2 {
		return errors.New("give a file and a command, such as flock /data/lock sh -c 'echo line >>/data/log'")
	}
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("locking %s: %w", args[0], err)
		}
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
