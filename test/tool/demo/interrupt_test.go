package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// interrupting is an output that interrupts the demo when it prints a word.
type interrupting struct {
	strings.Builder
	word      string
	interrupt context.CancelFunc
}

func (i *interrupting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.word) {
		i.interrupt()
	}
	return i.Builder.Write(p)
}

func TestDemo_InterruptedLeavesNothingBehind(t *testing.T) {
	hostfs.RequireRoot(t)
	binary, err := standalone.Binary(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"make a pool", "stage it", "write a file", "publish it  "} {
		t.Run(word, func(t *testing.T) {
			temp, err := os.MkdirTemp("", "hf") // short: it holds a socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(temp) })
			t.Setenv("TMPDIR", temp)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &interrupting{word: word, interrupt: cancel}
			err = run(ctx, binary, out)
			t.Logf("it ended with: %v", err)
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("it was not interrupted; it printed:\n%s", out.String())
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			mounts, err := nodeops.Mounts()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mounts {
				if strings.HasPrefix(m.Target, temp) {
					t.Errorf("left mounted: %s", m.Target)
				}
			}
			devices, err := filepath.Glob("/sys/block/loop*")
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range devices {
				if image, err := nodeops.BackingFile(filepath.Base(d)); err == nil && strings.HasPrefix(image, temp) {
					t.Errorf("left attached: %s", d)
				}
			}
		})
	}
}
