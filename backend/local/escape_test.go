package local

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
	check.OK(t, escape(v.Access.Directory))
	after, err := b.Get(t.Context(), v.ID)
	if err != nil || !after.Condition.Abnormal || !strings.Contains(after.Condition.Message, "docs/directory-quota.md") {
		t.Errorf("the volume is %+v, %v", after, err)
	}
	check.OK(t, b.Delete(t.Context(), v.ID))
}

func TestDelete_VolumeInUseDoesNotBlockItsNamesakeInAnotherPool(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		b := served(t, PoolConfig{Name: name, Engine: "directory", Path: hostfs.New(t, hostfs.Btrfs, 2<<30)})
		v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}})
		if name == "two" {
			check.Report(t, b.Delete(t.Context(), v.ID))
			continue
		}
		target := t.TempDir()
		check.OK(t, nodeops.Bind(t.Context(), v.Access.Directory, target, false, nil))
		t.Cleanup(func() { check.Report(t, nodeops.Unmount(context.Background(), target)) })
		says(t, b.Delete(t.Context(), v.ID), backend.ErrPrecondition, "a", target)
	}
}
