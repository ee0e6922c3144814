//go:build crashpoints

package crashpoint

import (
	"os"
	"syscall"
)

var fatal = Step(os.Getenv("HOLDFAST_CRASH_AT"))

// Here kills the process with SIGKILL if the environment names this step.
func Here(s Step) {
	if s == fatal {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
