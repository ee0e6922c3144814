package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestLimitOfImageOnXFS_Holds(t *testing.T)       { limitHolds(t, "image", hostfs.XFS) }
func TestLimitOfImageOnExt4_Holds(t *testing.T)      { limitHolds(t, "image", hostfs.Ext4) }
func TestLimitOfImageOnBtrfs_Holds(t *testing.T)     { limitHolds(t, "image", hostfs.Btrfs) }
func TestLimitOfDirectoryOnBtrfs_Holds(t *testing.T) { limitHolds(t, "directory", hostfs.Btrfs) }
func TestLimitOfDirectoryOnXFS_Holds(t *testing.T)   { limitHolds(t, "directory", hostfs.XFSQuota) }
func TestLimitOfDirectoryOnExt4_Holds(t *testing.T)  { limitHolds(t, "directory", hostfs.Ext4Quota) }

// ways try to write more into the volume at dir than its limit; beside is the directory of another volume. They return
// the error that stopped them.
var ways = map[string]func(dir, beside string, limit int64) error{
	"plain writes": func(dir, _ string, limit int64) error { return fill(filepath.Join(dir, "f"), limit+mib, 0) },
	"many files": func(dir, _ string, limit int64) error {
		for i := range limit/mib + 1 {
			if err := fill(filepath.Join(dir, fmt.Sprint(i)), mib, 0); err != nil {
				return err
			}
		}
		return nil
	},
	"holes": func(dir, _ string, limit int64) error {
		name := filepath.Join(dir, "sparse")
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, 4*limit)); err != nil {
			return err
		}
		return fill(name, limit+mib, 3*mib) // a hole follows every MiB of data
	},
	"fallocate": func(dir, _ string, limit int64) error {
		f, err := os.Create(filepath.Join(dir, "allocated"))
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fallocate(int(f.Fd()), 0, 0, 2*limit)
	},
	"hard links": func(dir, beside string, limit int64) error {
		if err := os.WriteFile(filepath.Join(beside, "f"), nil, 0o600); err != nil {
			return err
		}
		if err := os.Link(filepath.Join(beside, "f"), filepath.Join(dir, "link")); !errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("a link into another volume gave %w, want %w", err, unix.EXDEV)
		}
		if err := errors.Join(fill(filepath.Join(dir, "f"), limit/2, 0), os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "link"))); err != nil {
			return err
		}
		return fill(filepath.Join(dir, "link"), limit+mib, 0)
	},
	"renames between volumes": func(dir, beside string, limit int64) error {
		if err := fill(filepath.Join(beside, "big"), limit/2, 0); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(beside, "big"), filepath.Join(dir, "big")); !errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("a rename into another volume gave %w, want %w", err, unix.EXDEV)
		}
		return fill(filepath.Join(dir, "f"), limit+mib, 0)
	},
	"a second process": func(dir, _ string, limit int64) error {
		if err := fill(filepath.Join(dir, "first"), limit/2, 0); err != nil {
			return err
		}
		cmd := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(dir, "second"), "bs=1M", fmt.Sprintf("count=%d", limit/mib), "conv=fsync")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return nil
		case bytes.Contains(out, []byte("No space left")):
			return unix.ENOSPC
		case bytes.Contains(out, []byte("quota exceeded")):
			return unix.EDQUOT
		}
		return fmt.Errorf("%w: %s", err, out)
	},
}

func limitHolds(t *testing.T, engine string, k hostfs.Kind) {
	pool := hostfs.New(t, k, 2<<30)
	b := open(t, PoolConfig{Name: "pool", Engine: engine, Path: pool})
	t.Cleanup(func() { b.Close(context.Background()) })
	const limit = 64 * mib
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			obeyQuotas(t)
			spec := backend.VolumeSpec{Name: "a", Size: backend.Size{Required: limit, Limit: limit}}
			v, err := b.Create(t.Context(), spec)
			check.OK(t, err)
			spec.Name = "beside"
			other, err := b.Create(t.Context(), spec)
			check.OK(t, err)
			mounted(t, v, func(dir string) { mounted(t, other, func(beside string) { err = way(dir, beside, limit) }) })
			if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
				t.Errorf("past %d bytes the writer got %v, want ENOSPC or EDQUOT", limit, err)
			}
			// xfs lets the extent map of a file exceed the limit, but not its data.
			if after, err := b.Get(t.Context(), v.ID); err != nil || after.Used > limit+64<<10 || after.Condition.Abnormal {
				t.Errorf("after it the volume of %d bytes is %+v, %v", limit, after, err)
			}
			check.OK(t, errors.Join(b.Delete(t.Context(), v.ID), b.Delete(t.Context(), other.ID)))
		})
	}
	t.Run("copies, and one that grew", func(t *testing.T) { limitOfCopiesHolds(t, b, limit/2) })
}

// limitOfCopiesHolds fills copies of a volume that is half full, and finally the volume after it has grown.
func limitOfCopiesHolds(t *testing.T, b *Backend, limit int64) {
	obeyQuotas(t)
	ctx := t.Context()
	spec := func(name string, size int64) backend.VolumeSpec {
		return backend.VolumeSpec{Name: name, Size: backend.Size{Required: size}}
	}
	source := made(t, b, spec("a", limit))
	mounted(t, source, func(dir string) { check.OK(t, fill(filepath.Join(dir, "half"), limit/2, 0)) })
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	for _, test := range []struct {
		name string
		make func() (*backend.Volume, error)
	}{
		{"a clone", func() (*backend.Volume, error) { return b.Clone(ctx, "a", backend.VolumeSpec{Name: "b"}) }},
		{"a larger clone", func() (*backend.Volume, error) { return b.Clone(ctx, "a", spec("c", 2*limit)) }},
		{"a restored volume", func() (*backend.Volume, error) { return b.Restore(ctx, "s", backend.VolumeSpec{Name: "d"}) }},
		{"a larger restored volume", func() (*backend.Volume, error) { return b.Restore(ctx, "s", spec("e", 2*limit)) }},
		{"one that grew", func() (*backend.Volume, error) { return b.Expand(ctx, "a", backend.Size{Required: 2 * limit}) }},
	} {
		v, err := test.make()
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		mounted(t, v, func(dir string) {
			// The file system in an image grows when it is mounted.
			if v.Access.Directory != "" {
				if err := fill(filepath.Join(dir, "fits"), v.Size-limit*3/4, 0); err != nil {
					t.Errorf("%s of %d bytes refuses what fits: %v", test.name, v.Size, err)
				}
			}
			if err := fill(filepath.Join(dir, "more"), v.Size+mib, 0); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
				t.Errorf("past %d bytes the writer to %s got %v, want ENOSPC or EDQUOT", v.Size, test.name, err)
			}
		})
		if after, err := b.Get(t.Context(), v.ID); err != nil || after.Used > v.Size+64<<10 || after.Condition.Abnormal {
			t.Errorf("%s of %d bytes is %+v, %v", test.name, v.Size, after, err)
		}
	}
}

// fill writes a number of bytes to a file, with holes of the given size between MiB, and syncs it.
func fill(name string, bytes, hole int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	block := []byte(strings.Repeat("holdfast", mib/8))
	for i := range bytes / mib {
		if _, err := f.WriteAt(block, i*(mib+hole)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// obeyQuotas drops CAP_SYS_RESOURCE from the test's thread and its children: ext4 does not enforce quotas for a process
// that has it. The thread ends with the test, since it cannot regain the capability.
func obeyQuotas(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	check.OK(t, unix.Capset(&header, &caps[0]))
	check.OK(t, unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0))
}

func TestLimitOfDirectoryOnXFS_CountsFiles(t *testing.T)  { inodeLimitHolds(t, hostfs.XFSQuota) }
func TestLimitOfDirectoryOnExt4_CountsFiles(t *testing.T) { inodeLimitHolds(t, hostfs.Ext4Quota) }

func inodeLimitHolds(t *testing.T, k hostfs.Kind) {
	b := served(t, PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 2<<30)})
	t.Run("in a new volume and in a clone of it", func(t *testing.T) {
		obeyQuotas(t)
		spec := backend.VolumeSpec{Name: "a", Inodes: 100, Size: backend.Size{Required: 64 * mib}}
		v := made(t, b, spec)
		if n := filesUntilRefused(t, v.Access.Directory, 200); n >= 100 {
			t.Errorf("%d files fitted into a volume of 100 inodes", n)
		}
		spec.Name, spec.Inodes = "b", 150
		c := check.Got(b.Clone(t.Context(), v.ID, spec))(t)
		if n := filesUntilRefused(t, c.Access.Directory, 200); n == 0 || n > 51 {
			t.Errorf("%d more files fitted into a clone of 150 inodes that holds 100", n)
		}
		check.OK(t, errors.Join(b.Delete(t.Context(), "a"), b.Delete(t.Context(), "b")))
	})
}

// filesUntilRefused creates files until a quota stops it and returns their number.
func filesUntilRefused(t *testing.T, dir string, most int) int {
	t.Helper()
	for i := range most {
		f, err := os.CreateTemp(dir, "more-")
		if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
			return i
		}
		check.OK(t, err)
		f.Close()
	}
	t.Fatalf("%d files were made and nothing stopped it", most)
	return 0
}

func TestDirectoryOnXFS_LostLimitIsReported(t *testing.T)  { lostLimitShows(t, hostfs.XFSQuota) }
func TestDirectoryOnExt4_LostLimitIsReported(t *testing.T) { lostLimitShows(t, hostfs.Ext4Quota) }

func lostLimitShows(t *testing.T, k hostfs.Kind) {
	c := PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 2<<30)}
	b := open(t, c)
	v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: mib}})
	if v.Condition.Abnormal {
		t.Fatalf("at first it is %+v", v.Condition)
	}
	id, _, err := nodeops.ProjectOf(v.Access.Directory)
	check.OK(t, err)
	quota, err := nodeops.OpenProjectQuota(c.Path)
	check.OK(t, err)
	for _, left := range []nodeops.Limits{{}, {Bytes: mib}} {
		check.OK(t, quota.SetLimits(id, left))
		now, err := b.Get(t.Context(), "a")
		if err != nil || !now.Condition.Abnormal || !strings.Contains(now.Condition.Message, "no limit") {
			t.Errorf("with the limits %+v it is %+v, %v", left, now.Condition, err)
		}
	}
	check.OK(t, errors.Join(quota.Close(), b.Close(t.Context())))
	b = open(t, c)
	if now, err := b.Get(t.Context(), "a"); err != nil || now.Condition.Abnormal {
		t.Errorf("opened again it is %+v, %v", now.Condition, err)
	}
	check.OK(t, b.Close(t.Context()))
}

func TestDirectoryOnXFS_ReleasesQuotaIDs(t *testing.T)  { idsComeBack(t, hostfs.XFSQuota) }
func TestDirectoryOnExt4_ReleasesQuotaIDs(t *testing.T) { idsComeBack(t, hostfs.Ext4Quota) }

func idsComeBack(t *testing.T, k hostfs.Kind) {
	c := PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 2<<30), TrashRetention: backend.NoTrash} // otherwise they stay in the trash
	ids := func() (ids []uint32) {
		b := open(t, c)
		for _, name := range []string{"a", "b", "c"} {
			v := made(t, b, backend.VolumeSpec{Name: name, Size: backend.Size{Required: mib}})
			id, inherit, err := nodeops.ProjectOf(v.Access.Directory)
			if err != nil || !inherit {
				t.Fatalf("volume %s has quota id %d, inherited %t, %v", name, id, inherit, err)
			}
			ids = append(ids, id)
		}
		for _, name := range []backend.ID{"a", "b", "c"} {
			check.OK(t, b.Delete(t.Context(), name))
		}
		check.OK(t, b.Close(t.Context()))
		return ids
	}
	first := ids()
	if distinct := slices.Compact(slices.Sorted(slices.Values(first))); len(distinct) != 3 || distinct[0] == 0 {
		t.Errorf("three volumes had the quota ids %v", first)
	}
	if again := ids(); !slices.Equal(first, again) {
		t.Errorf("the first volumes had the quota ids %v, the next, after all were deleted, %v: ids leak", first, again)
	}
}
