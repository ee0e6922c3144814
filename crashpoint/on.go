//go:build crashpoints

package crashpoint

import (
	"os"
	"syscall"
)

var fatal = Step(os.Getenv("HOLDFAST_CRASH_AT"))

// Here ends the process with SIGKILL at the chosen step.
func Here(s Step) {
	if s == fatal {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
