package nodeops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestRBD_RefreshOfAClusterThatDoesNotAnswerIsLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "refresh")
	if err := unix.Mkfifo(file, 0o600); err != nil { // whose writer waits for a reader
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := refreshRBD(ctx, t.Name(), file); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
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
