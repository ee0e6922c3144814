// Package child starts processes that are killed when this process ends.
package child

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command that is killed when this process ends, and not before. The channel receives the result of
// Wait.
//
// The kernel kills the child when the thread that created it ends, which may be earlier: the thread of a goroutine that
// has entered other namespaces ends with the goroutine. So a thread of its own creates the child and waits for it.
func Start(cmd *exec.Cmd) (<-chan error, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}
