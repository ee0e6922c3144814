package local

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestPowerCut_ReportedImagesOnXFSSurvive(t *testing.T) {
	answersOutliveAPowerCut(t, "image", hostfs.XFS)
}

// On ext4, which copies blocks and does not share them.
func TestPowerCut_ReportedImagesOnExt4Survive(t *testing.T) {
	answersOutliveAPowerCut(t, "image", hostfs.Ext4)
}

func TestPowerCut_ReportedDirectoriesOnBtrfsSurvive(t *testing.T) {
	answersOutliveAPowerCut(t, "directory", hostfs.Btrfs)
}

func TestDirectoryOnXFS_OutlivesAPowerCut(t *testing.T) {
	answersOutliveAPowerCut(t, "directory", hostfs.XFSQuota)
}

// answersOutliveAPowerCut compares the pool, after each response, with the blocks on disk at that moment.
func answersOutliveAPowerCut(t *testing.T, engine string, k hostfs.Kind) {
	path := hostfs.New(t, k, 512*mib)
	b := served(t, PoolConfig{Name: "pool", Engine: engine, Path: path, TrashRetention: time.Hour})
	size := backend.Size{Required: 12 * mib}
	ignore := func(_ any, err error) error { return err }
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"create", func(ctx context.Context) error {
			return ignore(b.Create(ctx, backend.VolumeSpec{Name: "a", Size: size}))
		}},
		{"snapshot", func(ctx context.Context) error {
			written, err := b.Get(ctx, "a")
			if err != nil {
				return err
			}
			writeFS(t, written, []byte("content"))
			return ignore(b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"}))
		}},
		{"clone", func(ctx context.Context) error {
			return ignore(b.Clone(ctx, "a", backend.VolumeSpec{Name: "b"}))
		}},
		{"restore", func(ctx context.Context) error {
			return ignore(b.Restore(ctx, "s", backend.VolumeSpec{Name: "c"}))
		}},
		{"group", func(ctx context.Context) error {
			return ignore(b.SnapshotGroup(ctx, backend.GroupSpec{Name: "g", Sources: []backend.ID{"a", "b"}}))
		}},
		{"expand", func(ctx context.Context) error {
			return ignore(b.Expand(ctx, "a", backend.Size{Required: 16 * mib}))
		}},
		{"delete", func(ctx context.Context) error { return b.Delete(ctx, "b") }},
		{"undelete", func(ctx context.Context) error { return ignore(b.Undelete(ctx, "b")) }},
		{"delete a snapshot", func(ctx context.Context) error { return b.DeleteSnapshot(ctx, "s") }},
		{"delete a group", func(ctx context.Context) error { return b.DeleteGroup(ctx, "g") }},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		t.Run(step.name, func(t *testing.T) {
			onDisk := hostfs.Cut(t, k, path)
			for _, dir := range []string{string(volumes), string(snapshots), string(groups), trashDir} {
				want, got := filesIn(t, path, dir), filesIn(t, onDisk, dir)
				if dir == trashDir { // removals from the trash need not be on disk yet
					maps.DeleteFunc(got, func(name, _ string) bool { return want[name] == "" })
				}
				if !maps.Equal(got, want) {
					t.Errorf("of %v in %s there is left %v", want, dir, got)
				}
			}
		})
	}
}

// filesIn returns the checksum of each file below a directory of a pool.
func filesIn(t *testing.T, pool, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	root := filepath.Join(pool, dir)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		files[name] = fmt.Sprintf("%d bytes, sum %x", len(content), crc32.ChecksumIEEE(content))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}
