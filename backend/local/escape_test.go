package local

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestDirectoryOnXFS_ShowsAChangedQuotaID(t *testing.T) { escapeShows(t, hostfs.XFSQuota, changeID) }

func TestDirectoryOnExt4_ShowsAChangedQuotaID(t *testing.T) {
	escapeShows(t, hostfs.Ext4Quota, changeID)
}

func TestDirectoryOnBtrfs_ShowsANestedSubvolume(t *testing.T) {
	escapeShows(t, hostfs.Btrfs, func(dir string) error { return nodeops.CreateSubvolume(filepath.Join(dir, "nested")) })
}

func changeID(dir string) error { return nodeops.SetProject(dir, 0) }

// escapeShows evades the limit of a directory as its user can, which must be reported.
func escapeShows(t *testing.T, k hostfs.Kind, escape func(dir string) error) {
	b := served(t, PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, k, 2<<30)})
	v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}})
	if v.Condition.Abnormal {
		t.Fatalf("a new volume is %+v", v)
	}
	if err := escape(v.Access.Directory); err != nil {
		t.Fatal(err)
	}
	after, err := b.Get(t.Context(), v.ID)
	if err != nil || !after.Condition.Abnormal || !strings.Contains(after.Condition.Message, "docs/directory-quota.md") {
		t.Errorf("the volume is %+v, %v", after, err)
	}
	if err := b.Delete(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
}

func TestDelete_VolumeInUseDoesNotBlockItsNamesakeInAnotherPool(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		b := served(t, PoolConfig{Name: name, Engine: "directory", Path: hostfs.New(t, hostfs.Btrfs, 2<<30)})
		v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}})
		if name == "two" {
			if err := b.Delete(t.Context(), v.ID); err != nil {
				t.Error(err)
			}
			continue
		}
		target := t.TempDir()
		if err := nodeops.Bind(t.Context(), v.Access.Directory, target, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nodeops.Unmount(context.Background(), target); err != nil {
				t.Error(err)
			}
		})
		says(t, b.Delete(t.Context(), v.ID), backend.ErrPrecondition, "a", target)
	}
}
