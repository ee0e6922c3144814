package nodeops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if err := refreshRBD(t.Context(), t.Name(), file); err != nil {
		t.Error(err)
	}
	// The two that were given up are one. The last is that one too, or one more.
	content := make([]byte, 4)
	if n, err := cluster.Read(content); err != nil || n == 0 || n > 2 {
		t.Errorf("written were %q, %v", content[:n], err)
	}
}
