package nodeops

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// newQuotaBtrfs makes a btrfs with quotas.
func newQuotaBtrfs(t testing.TB) (dir string) {
	t.Helper()
	dir = newFS(t, "btrfs", gib)
	check.OK(t, EnableBtrfsQuota(t.Context(), dir))
	return dir
}

// subvolume creates one, with a limit unless that is 0.
func subvolume(t testing.TB, path string, limit int64) string {
	t.Helper()
	err := CreateSubvolume(path)
	if err == nil && limit > 0 {
		err = LimitSubvolume(path, limit)
	}
	check.OK(t, err)
	return path
}

// committed returns the usage after a sync.
func committed(t testing.TB, path string) int64 {
	t.Helper()
	command(t, "sync", "-f", path)
	return check.Got(SubvolumeUsage(path))(t)
}

// qgroups lists the quota groups of subvolumes with the program btrfs.
func qgroups(t testing.TB, dir string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(command(t, "btrfs", "qgroup", "show", dir)) {
		if id, _, _ := strings.Cut(line, " "); strings.HasPrefix(id, "0/") && id != "0/5" {
			ids = append(ids, id)
		}
	}
	return ids
}

// cleaned waits until the kernel has freed the space of all deleted subvolumes.
func cleaned(t testing.TB, dir string) {
	t.Helper()
	command(t, "btrfs", "filesystem", "sync", dir) // wakes the cleaner thread
	command(t, "btrfs", "subvolume", "sync", dir)
}

func TestSubvolume_LimitHolds(t *testing.T) {
	dir := newQuotaBtrfs(t)
	for way, script := range waysIn {
		t.Run(way, func(t *testing.T) {
			volume := subvolume(t, filepath.Join(dir, strings.ReplaceAll(way, " ", "-")), 16*mib)
			isFull(t, asContainer(t, script, volume))
			if used := committed(t, volume); used > 16*mib || used < 8*mib && way != "fallocate" {
				t.Errorf("%d bytes are used of %d", used, 16*mib)
			}
			// Root is limited too. Blocks that the next run truncates count until the next commit, so how much it can write is
			// not predictable.
			isFull(t, check.ErrorOf(run(t.Context(), "sh", "-e", "-c", script, "sh", volume)))
			if used := committed(t, volume); used > 16*mib {
				t.Errorf("%d bytes are used of %d by root", used, 16*mib)
			}
		})
	}
}

func TestSubvolume_LimitGrowsAndNothingMovesIntoItFromAnother(t *testing.T) {
	dir := newQuotaBtrfs(t)
	a, b := subvolume(t, filepath.Join(dir, "a"), 16*mib), subvolume(t, filepath.Join(dir, "b"), 16*mib)
	file := write(t, filepath.Join(b, "file"), "content")
	check.Fails(t, os.Rename(file, filepath.Join(a, "file")), unix.EXDEV)
	check.Fails(t, os.Link(file, filepath.Join(a, "file")), unix.EXDEV)
	check.OK(t, LimitSubvolume(a, 80*mib))
	check.Report(t, asContainer(t, waysIn["plain writes"], a))
	check.Fails(t, LimitSubvolume(a, 0), nil)
}

func TestSubvolume_InsideAnotherIsNotLimited(t *testing.T) {
	volume := subvolume(t, filepath.Join(newQuotaBtrfs(t), "volume"), 16*mib)
	check.OK(t, os.Chmod(volume, 0o777))
	script := `cd "$1"; exec setpriv --reuid=1234 --regid=1234 --clear-groups sh -e -c '
		btrfs subvolume create inner; dd if=/dev/zero of=inner/f bs=1M count=64 conv=fsync'`
	check.Report(t, check.ErrorOf(run(t.Context(), "sh", "-c", script, "sh", volume))) // else say where it is documented that it is limited
}

func TestSubvolume_DataSharedWithASnapshotIsLimitedAndNotUnshared(t *testing.T) {
	dir := newQuotaBtrfs(t)
	volume, clone := subvolume(t, filepath.Join(dir, "volume"), 64*mib), filepath.Join(dir, "clone")
	fillRandomly(t, volume)
	unshared := func() int64 {
		t.Helper()
		committed(t, volume)
		return check.Got(SubvolumeUnshared(volume))(t)
	}
	if got := unshared(); got < 12*mib {
		t.Errorf("%d bytes are unshared, want at least %d", got, 12*mib)
	}
	check.OK(t, SnapshotSubvolume(clone, volume, false))
	if got := unshared(); got >= mib {
		t.Errorf("with a snapshot %d bytes are unshared", got)
	}
	check.OK(t, LimitSubvolume(clone, 16*mib))
	if used := committed(t, clone); used < 12*mib {
		t.Errorf("%d bytes are used, want at least %d", used, 12*mib)
	}
	isFull(t, asContainer(t, `dd if=/dev/zero of=$1/more bs=1M count=12 conv=fsync`, clone))
	check.Same(t, checksum(t, filepath.Join(clone, "f")), checksum(t, filepath.Join(volume, "f")))
}

// fillRandomly writes 12 MiB to a file in a directory.
func fillRandomly(t testing.TB, dir string) {
	t.Helper()
	command(t, "dd", "if=/dev/urandom", "of="+filepath.Join(dir, "f"), "bs=1M", "count=12", "conv=fsync")
}

func TestSubvolume_ReadOnlySnapshotKeepsItsContent(t *testing.T) {
	dir := newFS(t, "btrfs", fileSystems["btrfs"])
	volume := subvolume(t, filepath.Join(dir, "volume"), 0)
	file := write(t, filepath.Join(volume, "file"), "before")
	snapshot := filepath.Join(dir, "snapshot")
	check.OK(t, SnapshotSubvolume(snapshot, volume, true))
	write(t, file, "after")
	holds(t, filepath.Join(snapshot, "file"), "before")
	check.Fails(t, os.WriteFile(filepath.Join(snapshot, "file"), nil, 0o600), unix.EROFS)
	check.Report(t, DeleteSubvolume(t.Context(), snapshot))
	check.Fails(t, SnapshotSubvolume(filepath.Join(dir, "s"), file, true), nil)
}

func TestSubvolume_DeletionLeavesNoQgroups(t *testing.T) {
	dir := newQuotaBtrfs(t)
	for i := range 10 {
		volume := subvolume(t, filepath.Join(dir, fmt.Sprint(i)), 64*mib)
		command(t, "dd", "if=/dev/zero", "of="+filepath.Join(volume, "f"), "bs=1M", "count=2", "conv=fsync")
		for range 2 {
			check.OK(t, DeleteSubvolume(t.Context(), volume))
		}
		cleaned(t, dir)
	}
	// A kernel that removes quota groups itself gives up on a busy one, as the next deletion here does.
	if left := qgroups(t, dir); len(left) > 1 {
		t.Errorf("left without a sweep: %v", left)
	}
	check.OK(t, SweepQgroups(dir))
	if left := qgroups(t, dir); len(left) > 0 {
		t.Errorf("left after the sweep: %v", left)
	}
}

func TestSubvolume_DeletionIncludesThoseInside(t *testing.T) {
	dir := newQuotaBtrfs(t)
	volume := subvolume(t, filepath.Join(dir, "volume"), 64*mib)
	for i := range 20 { // more than one search returns
		inner := subvolume(t, filepath.Join(volume, fmt.Sprint("inner ", i)), 0)
		subvolume(t, filepath.Join(inner, "deeper"), 0)
		write(t, filepath.Join(inner, "file"), "content")
	}
	beside := subvolume(t, filepath.Join(dir, "beside"), 64*mib)
	check.OK(t, os.Symlink(beside, filepath.Join(volume, "link")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	check.Fails(t, DeleteSubvolume(ended, volume), context.Canceled)
	check.OK(t, DeleteSubvolume(t.Context(), volume))
	absent(t, volume)
	cleaned(t, dir)
	check.OK(t, SweepQgroups(dir))
	if left := qgroups(t, dir); len(left) != 1 {
		t.Errorf("quota groups %v are left, want that of %s", left, beside)
	}
}

func TestSweep_RemovesQgroupsOfDeletedSubvolumesAndNoOthers(t *testing.T) {
	dir := newQuotaBtrfs(t)
	gone := subvolume(t, filepath.Join(dir, "gone"), 16*mib)
	kept := subvolume(t, filepath.Join(dir, "kept"), 16*mib)
	snapshot := filepath.Join(dir, "snapshot")
	check.OK(t, SnapshotSubvolume(snapshot, kept, true))
	command(t, "btrfs", "qgroup", "create", "1/7", dir)
	command(t, "btrfs", "subvolume", "delete", "-c", gone) // as after a kill before the quota group was removed
	cleaned(t, dir)
	check.OK(t, SweepQgroups(dir))
	if left := qgroups(t, dir); len(left) != 2 {
		t.Errorf("quota groups %v are left, want those of %s and %s", left, kept, snapshot)
	}
	if !strings.Contains(command(t, "btrfs", "qgroup", "show", dir), "1/7") {
		t.Error("a quota group that an administrator made is gone")
	}
	isFull(t, asContainer(t, waysIn["plain writes"], kept))
	check.Report(t, SweepQgroups(newFS(t, "btrfs", fileSystems["btrfs"]))) // without quotas
}

// New kernels refuse to remove the quota groups of existing subvolumes; old ones do not.
func TestSweep_KnowsWhichSubvolumesExist(t *testing.T) {
	dir := newQuotaBtrfs(t)
	root := check.Got(os.Open(dir))(t)
	defer root.Close()
	volume := subvolume(t, filepath.Join(dir, "volume"), 16*mib)
	var id uint64
	check.OK(t, onSubvolume(volume, func(_ *os.File, i uint64) error { id = i; return nil }))
	if exists, err := subvolumeExists(root, id); err != nil || !exists {
		t.Errorf("subvolume %d exists: %t, %v", id, exists, err)
	}
	check.OK(t, DeleteSubvolume(t.Context(), volume))
	cleaned(t, dir)
	if exists, err := subvolumeExists(root, id); err != nil || exists {
		t.Errorf("subvolume %d is gone, but exists: %t, %v", id, exists, err)
	}
}

func TestSubvolume_FromBeforeQuotasIsCountedAndLimited(t *testing.T) {
	dir := newFS(t, "btrfs", gib)
	volume := subvolume(t, filepath.Join(dir, "volume"), 0)
	command(t, "sh", "-e", "-c", "cd $1; head -c 32M /dev/urandom | split -a 4 -b 4096; sync -f .", "sh", volume)
	check.Fails(t, LimitSubvolume(volume, 48*mib), nil, "not enabled")
	check.Fails(t, check.ErrorOf(SubvolumeUsage(volume)), nil)
	for range 2 {
		check.OK(t, EnableBtrfsQuota(t.Context(), dir))
	}
	if used, err := SubvolumeUsage(volume); err != nil || used < 32*mib {
		t.Errorf("%d bytes are used, %v, want at least %d", used, err, 32*mib)
	}
	check.OK(t, LimitSubvolume(volume, 48*mib))
	isFull(t, asContainer(t, waysIn["plain writes"], volume))
}

func TestQuotas_EnablingOnBtrfsRestoresLostCounts(t *testing.T) {
	dir := newQuotaBtrfs(t)
	volume := subvolume(t, filepath.Join(dir, "volume"), 64*mib)
	fillRandomly(t, volume)
	check.OK(t, SnapshotSubvolume(filepath.Join(dir, "snapshot"), volume, true))
	groups := qgroups(t, dir)
	command(t, "btrfs", "qgroup", "create", "1/7", dir)
	_, _ = run(t.Context(), "btrfs", "qgroup", "assign", "--no-rescan", groups[0], "1/7", dir) // its exit status is a warning
	root := check.Got(os.Open(dir))(t)
	defer root.Close()
	inconsistent := filepath.Join(qgroupsOf(root), "inconsistent")
	holds(t, inconsistent, "1\n") // the kernel has lost count
	check.OK(t, EnableBtrfsQuota(t.Context(), dir))
	holds(t, inconsistent, "0\n")
	holds(t, filepath.Join(qgroupsOf(root), "drop_subtree_threshold"), "8\n") // how deep a tree is whose removal makes it lose count
}

func TestSubvolume_IsDistinguishedFromADirectory(t *testing.T) {
	dir := newFS(t, "btrfs", fileSystems["btrfs"])
	volume := subvolume(t, filepath.Join(dir, "volume"), 0)
	plain := filepath.Join(volume, "plain")
	check.OK(t, os.Mkdir(plain, 0o755))
	for path, want := range map[string]bool{dir: true, volume: true, plain: false, t.TempDir(): false, write(t, filepath.Join(dir, "file"), ""): false} {
		if got, err := IsSubvolume(path); err != nil || got != want {
			t.Errorf("%s: %t, %v, want %t", path, got, err, want)
		}
	}
	check.Fails(t, check.ErrorOf(IsSubvolume(filepath.Join(dir, "missing"))), nil)
	check.Fails(t, CreateSubvolume(volume), unix.EEXIST)
	check.Fails(t, DeleteSubvolume(t.Context(), plain), nil)
	check.Report(t, check.ErrorOf(os.Stat(plain)))
}
