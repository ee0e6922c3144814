package nodeops

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestProbe_FindsFeaturesByTryingAndLeavesNothingBehind(t *testing.T) {
	requireRoot(t)
	for fstype, want := range map[string]Features{
		"ext4":  {FSType: "ext4", BlockSize: 4096, DirectIO: true},
		"xfs":   {FSType: "xfs", BlockSize: 4096, DirectIO: true, Reflink: true},
		"btrfs": {FSType: "btrfs", BlockSize: 4096, DirectIO: isLinux6(15), Reflink: true},
	} {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, fileSystems[fstype])
			dir := mountImage(t, image)
			before := names(t, dir)
			check.Same(t, check.Got(Probe(dir))(t), want)
			check.Same(t, names(t, dir), before)
			unmountAll(t, dir)
			readOnly := Features{FSType: want.FSType, BlockSize: want.BlockSize, ReadOnly: true}
			check.Same(t, check.Got(Probe(mountImage(t, image, "ro")))(t), readOnly)
		})
	}
}

func TestProbe_XFSWithoutReflinkIsRecognized(t *testing.T) {
	check.Same(t, check.Got(Probe(newFS(t, "xfs", fileSystems["xfs"], "-m", "reflink=0")))(t).Reflink, false)
}

func TestProbe_BtrfsQuotaIsRecognized(t *testing.T) {
	dir := newFS(t, "btrfs", fileSystems["btrfs"])
	command(t, "btrfs", "quota", "enable", dir)
	check.Same(t, check.Got(Probe(dir))(t).BtrfsQuota, true)
}

func TestProbe_OfAFileOrNothingIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{write(t, filepath.Join(dir, "file"), ""), filepath.Join(dir, "missing")} {
		check.Fails(t, check.ErrorOf(Probe(path)), nil)
	}
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	for _, e := range check.Got(os.ReadDir(dir))(t) {
		all = append(all, e.Name())
	}
	return all
}

func TestProbe_ProjectQuotaIsRecognizedWhereEnforced(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, _ *ProjectQuota) {
		check.Same(t, check.Got(Probe(dir))(t).ProjectQuota, true)
	})
}

func TestUsage_ReportsSizeFilesAndType(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
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

func syncAt(t testing.TB, dir string) {
	t.Helper()
	command(t, "sync", "-f", dir)
}

func TestUsage_OfAMissingPathIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	check.Fails(t, check.ErrorOf(Statfs(t.Context(), path)), unix.ENOENT, path)
}

func TestStatfs_HangingCallIsAwaitedUntilTheDeadlineAndNeverRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked offThread[FSUsage]
		answer, calls := make(chan struct{}), 0
		hang := func() (FSUsage, error) {
			calls++
			<-answer
			return FSUsage{Type: "slow"}, nil
		}
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				check.Fails(t, check.ErrorOf(asked.do(ctx, "/hangs", "it hangs", hang)), context.DeadlineExceeded, "it hangs")
			})
		}
		callers.Wait()
		callers.Go(func() { check.Same(t, check.Got(asked.do(t.Context(), "/hangs", "it hangs", hang))(t).Type, "slow") })
		synctest.Wait() // it waits
		works := func() (FSUsage, error) { return FSUsage{Type: "fast"}, nil }
		check.Same(t, check.Got(asked.do(t.Context(), "/works", "", works))(t).Type, "fast")
		close(answer)
		callers.Wait()
		check.Same(t, calls, 1)
	})
}
