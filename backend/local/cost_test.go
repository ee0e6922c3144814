package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/image"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestSnapshot_OfAnEmptyVolumeCountsAgainstThePool(t *testing.T) {
	c := PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.Ext4, 256*mib)}
	c.Reserved = reserveFor(t, c.Path, 64*mib)
	b := open(t, c)
	t.Cleanup(func() { b.Close(context.Background()) })
	made(t, b, block("a"))
	count, err := 0, error(nil)
	for ; err == nil && count < 100; count++ {
		_, err = b.Snapshot(t.Context(), backend.SnapshotSpec{Name: fmt.Sprint("s", count), Source: "a"})
	}
	if !errors.Is(err, backend.ErrExhausted) {
		t.Fatalf("%d snapshots, %v", count, err)
	}
	// An earlier release did not charge them.
	meta := filepath.Join(c.Path, "snapshots", "s0", metaFile)
	before := capacityOf(t, b).Promised
	rewrite(t, meta, `"charge": 1048576`, `"charge": 0`)
	check.OK(t, b.Close(context.Background()))
	b = open(t, c)
	if after := capacityOf(t, b).Promised; after != before {
		t.Errorf("%d bytes are promised after a restart, before it were %d", after, before)
	}
}

func TestSnapshot_IsChargedWithWhatItsSourceHadInMemory(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 256 * mib}})
	dir := use(t, v)
	check.OK(t, os.WriteFile(filepath.Join(dir, "new"), bytes.Repeat([]byte("x"), 64*mib), 0o600))
	before := capacityOf(t, b).Promised
	s := check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	if promised := capacityOf(t, b).Promised - before; s.Used < 64*mib || promised != s.Used {
		t.Errorf("it is charged with %d bytes, and %d are promised", s.Used, promised)
	}
}

func rewrite(t *testing.T, file, from, to string) {
	t.Helper()
	data := check.Got(os.ReadFile(file))(t)
	changed := bytes.Replace(data, []byte(from), []byte(to), 1)
	if bytes.Equal(data, changed) {
		t.Fatalf("%s lacks %s", data, from)
	}
	check.OK(t, os.WriteFile(file, changed, 0o600))
}

func TestSnapshot_IsMeasuredOnce(t *testing.T) {
	b := served(t, roomy(t, hostfs.Ext4, 1))
	written(t, b, sized("a", 128*mib))
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	p := b.pools()[0]
	others := func() int64 {
		t.Helper()
		check.OK(t, p.survey(t.Context()))
		return p.foreign
	}
	before := others()
	place := filepath.Join(p.Path, "snapshots", "s")
	check.OK(t, os.Rename(filepath.Join(place, "image"), filepath.Join(place, "hidden")))
	if after := others(); after > before+mib {
		t.Errorf("%d bytes are of others, before were %d: the snapshot was measured again", after, before)
	}
	if s, err := b.GetSnapshot(t.Context(), "s"); err != nil || !s.Condition.Abnormal {
		t.Errorf("a snapshot without its image is %+v, %v", s, err)
	}
	check.OK(t, b.DeleteSnapshot(t.Context(), "s"))
	others()
	if len(p.measured) != 0 {
		t.Errorf("known are the sizes of %v", p.measured)
	}
}

func TestDirectoryOnXFS_LimitsFilesBySize(t *testing.T) { filesAreLimitedBySize(t, hostfs.XFSQuota) }

func TestDirectoryOnExt4_LimitsFilesBySize(t *testing.T) { filesAreLimitedBySize(t, hostfs.Ext4Quota) }

func filesAreLimitedBySize(t *testing.T, k hostfs.Kind) {
	c := PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 2<<30)}
	b := open(t, c)
	t.Cleanup(func() { b.Close(context.Background()) })
	obeyQuotas(t)
	spec := backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 16 * mib}}
	v := made(t, b, spec)
	made(t, b, spec) // the same request: the limit is not part of it
	if n := filesUntilRefused(t, v.Access.Directory, 2000); n > 1024 || n < 1000 {
		t.Errorf("%d files fitted into 16 MiB", n)
	}
	before := capacityOf(t, b)
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	// 1,000 empty files use hardly any bytes, but on ext4 the inodes of 16 MiB.
	if cost := capacityOf(t, b).Promised - before.Promised; cost < mib || k.Name == hostfs.Ext4Quota.Name && cost < 15*mib {
		t.Errorf("a snapshot of 1,000 empty files costs %d bytes", cost)
	}
	copied := check.Got(b.Restore(t.Context(), "s", backend.VolumeSpec{Name: "b", Size: spec.Size}))(t)
	if n := filesUntilRefused(t, copied.Access.Directory, 2000); n > 100 {
		t.Errorf("%d more files fitted into a copy", n)
	}
	check.Got(b.Expand(t.Context(), "a", backend.Size{Required: 32 * mib}))(t)
	if n := filesUntilRefused(t, v.Access.Directory, 2000); n < 1000 {
		t.Errorf("%d more files fitted when it had twice the size", n)
	}
	// Directories of an earlier release have no limit, nor do their copies.
	made(t, b, backend.VolumeSpec{Name: "old", Size: spec.Size})
	check.OK(t, b.Close(context.Background()))
	rewrite(t, filepath.Join(c.Path, "volumes", "old", metaFile), `"inodesLeast"`, `"unknown"`)
	b = open(t, c)
	old := check.Got(b.Clone(t.Context(), "old", backend.VolumeSpec{Name: "copy"}))(t)
	for _, dir := range []string{filepath.Join(c.Path, "volumes", "old", "data"), old.Access.Directory} {
		for i := range 1500 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatalf("after %d files: %v", i, err)
			}
		}
	}
}

func TestCapacity_SaysWhatASnapshotTakes(t *testing.T) {
	for _, test := range []struct {
		fs     hostfs.Kind
		engine string
		cost   backend.SnapshotCost
		waits  time.Duration // of who uses a volume, at most
	}{
		{hostfs.XFS, "image", backend.SharesBlocks, time.Minute},
		{hostfs.Btrfs, "image", backend.SharesBlocks, time.Minute},
		{hostfs.Ext4, "image", backend.CopiesAll, 10 * time.Second},
		{hostfs.XFSQuota, "directory", backend.SharesBlocks, 0},
		{hostfs.Ext4Quota, "directory", backend.CopiesAll, 0},
		{hostfs.Btrfs, "directory", backend.SharesBlocks, 0},
	} {
		config := roomy(t, test.fs, 1)
		config.Engine = test.engine
		b := served(t, config)
		c := check.Got(b.Capacity(t.Context(), ""))(t)
		var waits time.Duration
		if images, is := b.slots[0].pool.engine.(*image.Engine); is {
			waits = images.FreezeLimit
		}
		if c.FileSystem == "" || !strings.HasPrefix(test.fs.Name, c.FileSystem) || c.SnapshotCost != test.cost || waits != test.waits {
			t.Errorf("%s on %s: %q, %q, frozen for %s at most", test.engine, test.fs.Name, c.FileSystem, c.SnapshotCost, waits)
		}
	}
}
