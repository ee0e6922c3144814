package child

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// onThreadThatEnds runs f in a goroutine whose thread ends with it, and returns that thread.
func onThreadThatEnds(f func()) (thread int) {
	done := make(chan int)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the first thread stays as long as the process
			done <- onThreadThatEnds(f)
			runtime.UnlockOSThread()
			return
		}
		f()
		done <- unix.Gettid()
	}()
	return <-done
}

func TestChild_OutlivesTheThreadThatStartsIt(t *testing.T) {
	cmd := exec.Command("sleep", "infinity")
	var ended <-chan error
	var err error
	thread := onThreadThatEnds(func() { ended, err = Start(cmd) })
	check.OK(t, err)
	for unix.Tgkill(unix.Getpid(), thread, 0) == nil {
		runtime.Gosched()
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with the thread: %v", err)
	case <-time.After(100 * time.Millisecond): // a signal that was sent before has come by then
	}
	check.OK(t, cmd.Process.Kill())
	if err := <-ended; err == nil {
		t.Error("it was killed and ended well")
	}
}

func TestChild_ThatCannotStartIsRefused(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program")); err == nil {
		t.Error("it started")
	}
}
