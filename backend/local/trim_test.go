package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// taken is what an image takes in its pool.
func taken(t *testing.T, v *backend.Volume) int64 {
	t.Helper()
	var st unix.Stat_t
	check.OK(t, unix.Stat(v.Access.Image, &st))
	return st.Blocks * 512
}

// free is what a file system has left.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	check.OK(t, unix.Statfs(dir, &fs))
	return int64(fs.Bfree) * fs.Bsize //nolint:gosec // of a small file system
}

// deletedIn writes a file in a volume and deletes it, so that what it took is free in the volume and not in the pool.
func deletedIn(t *testing.T, v *backend.Volume, dir string) {
	t.Helper()
	before, had := taken(t, v), free(t, dir)
	file := filepath.Join(dir, "deleted")
	writeSyncedFile(t, file, make([]byte, 32*mib))
	check.OK(t, os.Remove(file))
	if v.FSType == "xfs" { // which does so in the background
		wait.Until(t, "the file system having freed the file", func() bool { return free(t, dir) >= had-mib })
	}
	root := check.Got(os.Open(dir))(t)
	defer root.Close()
	check.OK(t, unix.Syncfs(int(root.Fd())))
	if now := taken(t, v); v.Provisioning == backend.Thin && now < before+31*mib {
		t.Fatalf("volume %s took %d and takes %d", v.Name, before, now)
	}
}

func TestTrim_GivesBackDeletedFilesOfThinVolumesAloneOneAfterTheOther(t *testing.T) {
	hostfs.RequireRoot(t)
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 4096*mib), Reserved: "0"})
			var all []*backend.Volume
			for name, how := range map[string]backend.Provisioning{"a": backend.Thin, "b": backend.Thin, "thick": backend.Thick} {
				v := made(t, b, backend.VolumeSpec{Name: name, FSType: fstype, Provisioning: how, Size: backend.Size{Required: 320 * mib}})
				deletedIn(t, v, use(t, v))
				all = append(all, v)
			}
			made(t, b, backend.VolumeSpec{Name: "unused", Size: backend.Size{Required: 64 * mib}})
			p, now := b.pools()[0], time.Unix(1, 0)
			var gave []string
			trim := func() {
				t.Helper()
				before := map[string]int64{}
				for _, v := range all {
					before[v.Name] = taken(t, v)
				}
				b.trimPool(t.Context(), p, now)
				for _, v := range all {
					if is := taken(t, v); is < before[v.Name]-16*mib {
						gave = append(gave, v.Name)
					} else if is < before[v.Name] && v.Provisioning == backend.Thick {
						t.Errorf("the thick one takes %d less", before[v.Name]-is)
					}
				}
			}
			trim()
			now = now.Add(time.Minute)
			trim() // it is too early for the next
			if len(gave) != 1 || gave[0] != "a" {
				t.Fatalf("at first %q gave back space", gave)
			}
			now = now.Add(trimEvery)
			trim()
			if len(gave) != 2 || gave[1] != "b" {
				t.Errorf("then %q gave back space", gave)
			}
			now = now.Add(trimEvery)
			trim()
			if len(gave) != 2 || p.trimmed != all[0].ID && p.trimmed != all[1].ID && p.trimmed != all[2].ID {
				t.Errorf("after all had their turn %q gave back space, the last was %q", gave, p.trimmed)
			}
		})
	}
}
