package nodeops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// A mapping that succeeds when no caller waits any more is undone before another caller can be given its device.
func TestMapRBD_DeviceThatIsUnmappedIsGivenToNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, undone := make(chan struct{}), make(chan struct{})
		all := rbdMaps{running: map[string]*rbdMap{}, onThread: func(*RBD) (*RBDDevice, func() error, error) {
			<-answer
			return &RBDDevice{Path: "/dev/rbd0"}, func() error { <-undone; return nil }, nil
		}}
		first := all.join(&RBD{Image: "a"})
		all.leave(first)
		close(answer)
		synctest.Wait()
		second := all.join(&RBD{Image: "a"})
		close(undone)
		<-second.done
		if second.device != nil || !errors.Is(second.err, errAbandoned) {
			t.Errorf("the second caller is given %+v, %v", second.device, second.err)
		}
		third := all.join(&RBD{Image: "a"})
		if <-third.done; third.err != nil || third.device == nil {
			t.Errorf("the third caller, who waits, is given %+v, %v", third.device, third.err)
		}
	})
}

func TestRBD_RefreshOfAClusterThatDoesNotAnswerIsLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "refresh")
	if err := unix.Mkfifo(file, 0o600); err != nil { // whose writer waits for a reader
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		check.Fails(t, refreshRBD(ctx, t.Name(), file), context.DeadlineExceeded)
		cancel()
	}
	cluster, err := os.OpenFile(file, os.O_RDWR, 0) // answers from now on
	check.OK(t, err)
	defer cluster.Close()
	check.Report(t, refreshRBD(t.Context(), t.Name(), file))
	// The two that were given up are one. The last is that one too, or one more.
	content := make([]byte, 4)
	if n, err := cluster.Read(content); err != nil || n == 0 || n > 2 {
		t.Errorf("written were %q, %v", content[:n], err)
	}
}
