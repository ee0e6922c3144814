package export

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestExportedXFSImages_Conform(t *testing.T) { conforms(t, "image", "xfs", hostfs.XFS, size) }

func TestExportedExt4Images_Conform(t *testing.T) {
	requireOnlineExt4(t)
	conforms(t, "image", "ext4", hostfs.Ext4, 64*mib)
}

// The suite takes snapshots of groups, which directories in use do not support.
func TestExportedDirectories_AreMadeCopiedGrownAndDeleted(t *testing.T) {
	s := newServer(t, "directory", hostfs.Btrfs, 4<<30)
	a, b := s.create("a"), s.create("b")
	s.write(a, []byte("one"))
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: a.ID}))(t)
	_, err := s.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{a.ID, b.ID}})
	check.Fails(t, err, backend.ErrPrecondition, "is in use", "engine Image")
	s.write(a, []byte("two"))
	back := check.Got(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "c"}))(t)
	if grown, err := s.Expand(t.Context(), a.ID, backend.Size{Required: 2 * size}); err != nil || grown.Size != 2*size {
		t.Errorf("grown is %+v, %v", grown, err)
	}
	s.restart()
	s.served(a.ID, b.ID, back.ID)
	check.Same(t, string(s.read(s.get(a.ID)))+string(s.read(s.get(back.ID))), "twoone")
	for _, id := range []backend.ID{a.ID, b.ID, back.ID} {
		s.remove(id)
	}
	s.served()
}

func conforms(t *testing.T, engine, fsType string, k hostfs.Kind, smallest int64) {
	hostfs.RequireRoot(t)
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		s := newServer(t, engine, k, size)
		return &backendtest.Fixture{
			Backend: s.Backend,
			Reopen: func(*testing.T) backend.Storage {
				s.restart()
				return s.Backend
			},
			Write: func(_ *testing.T, v *backend.Volume, content []byte) { s.write(v, content) },
			Read: func(_ *testing.T, v *backend.Volume, length int) []byte {
				content := s.read(v)
				return content[:min(length, len(content))]
			},
			Mode: backend.Filesystem, FSType: fsType, Smallest: smallest,
		}
	}}.Run(t)
}

// requireOnlineExt4 skips the test if the kernel does not let this process grow a mounted ext4.
func requireOnlineExt4(t *testing.T) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	check.OK(t, unix.Capget(&header, &caps[0]))
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		hostfs.Skip(t, "ext4-growth", "this process lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4")
	}
}
