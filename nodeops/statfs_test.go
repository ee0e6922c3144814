package nodeops

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestUsage_ReportsSizeFilesAndType(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			dir := newFS(t, fstype, size)
			before := check.Got(Statfs(t.Context(), dir))(t)
			if before.Type != fstype || before.Total > size || before.Total < size/2 || before.Used+before.Available > before.Total {
				t.Errorf("a %s of %d bytes: %+v", fstype, size, before)
			}
			write(t, filepath.Join(dir, "file"), strings.Repeat("x", 8<<20))
			syncAt(t, dir)
			after := check.Got(Statfs(t.Context(), dir))(t)
			if grown := after.Used - before.Used; grown < 8*mib || grown > 12*mib {
				t.Errorf("8 MiB were written and the usage grew by %d", grown)
			}
			if fstype != "btrfs" && (after.InodesUsed != before.InodesUsed+1 || after.Inodes != after.InodesUsed+after.InodesFree) {
				t.Errorf("one file was made: %+v, before %+v", after, before)
			}
		})
	}
}

func syncAt(t testing.TB, dir string) {
	t.Helper()
	command(t, "sync", "-f", dir)
}

func TestUsage_OfAMissingPathIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	if _, err := Statfs(t.Context(), path); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want ENOENT that names the path", err)
	}
}

func TestStatfs_HangingCallIsAwaitedUntilTheDeadlineAndNeverRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked usageCalls
		answer := make(chan struct{})
		calls := 0
		hang := func(string) (FSUsage, error) {
			calls++
			<-answer
			return FSUsage{Type: "slow"}, nil
		}
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := asked.ask(ctx, "/hangs", hang); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the caller's own end", err)
				}
			})
		}
		callers.Wait()
		late := make(chan FSUsage)
		go func() {
			usage, err := asked.ask(t.Context(), "/hangs", hang)
			check.Report(t, err)
			late <- usage
		}()
		synctest.Wait()
		if other, err := asked.ask(t.Context(), "/works", func(string) (FSUsage, error) { return FSUsage{Type: "fast"}, nil }); err != nil || other.Type != "fast" {
			t.Errorf("another path: %+v, %v", other, err)
		}
		close(answer)
		if usage := <-late; usage.Type != "slow" || calls != 1 {
			t.Errorf("got %+v after %d calls, want the answer of one", usage, calls)
		}
	})
}
