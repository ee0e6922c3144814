package local

import (
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
	"github.com/holdfast-storage/holdfast/test/rig/check"
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

// ignore leaves of an answer the error.
func ignore(_ any, err error) error { return err }

// answersOutliveAPowerCut compares the pool, after each response, with the blocks on disk at that moment.
func answersOutliveAPowerCut(t *testing.T, engine string, k hostfs.Kind) {
	path := hostfs.New(t, k, 512*mib)
	b := served(t, PoolConfig{Name: "pool", Engine: engine, Path: path, TrashRetention: time.Hour})
	size := backend.Size{Required: 12 * mib}
	ctx := t.Context()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"create", func() error { return ignore(b.Create(ctx, backend.VolumeSpec{Name: "a", Size: size})) }},
		{"snapshot", func() error {
			writeFS(t, check.Got(b.Get(ctx, "a"))(t), []byte("content"))
			return ignore(b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"}))
		}},
		{"clone", func() error { return ignore(b.Clone(ctx, "a", backend.VolumeSpec{Name: "b"})) }},
		{"restore", func() error { return ignore(b.Restore(ctx, "s", backend.VolumeSpec{Name: "c"})) }},
		{"group", func() error {
			return ignore(b.SnapshotGroup(ctx, backend.GroupSpec{Name: "g", Sources: []backend.ID{"a", "b"}}))
		}},
		{"expand", func() error { return ignore(b.Expand(ctx, "a", backend.Size{Required: 16 * mib})) }},
		{"delete", func() error { return b.Delete(ctx, "b") }},
		{"undelete", func() error { return ignore(b.Undelete(ctx, "b")) }},
		{"delete a snapshot", func() error { return b.DeleteSnapshot(ctx, "s") }},
		{"delete a group", func() error { return b.DeleteGroup(ctx, "g") }},
	} {
		if err := step.do(); err != nil {
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
