package export

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// smallExt4 is a volume that is too small for xfs, which can grow while it is exported.
func smallExt4(spec *backend.VolumeSpec) {
	spec.FSType, spec.Size.Required = "ext4", 64*mib
}

// canUse fails unless clients can use the reported size of a volume.
func (s *server) canUse(v *backend.Volume, bytes int64) {
	s.Helper()
	if has := sizeOf(s.T, s.target(v.ID)); v.Size != bytes || has < bytes*4/5 || v.Condition.Abnormal {
		s.Errorf("volume %s of %d MiB is %+v, its file system has %d MiB", v.ID, bytes/mib, v, has/mib)
	}
}

func TestCopy_LargerThanItsExt4SourceIsUsedWhole(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
	larger := backend.Size{Required: 200 * mib}
	b := check.Got(s.Clone(t.Context(), v.ID, backend.VolumeSpec{Name: "b", Size: larger}))(t)
	c := check.Got(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "c", Size: larger}))(t)
	for _, v := range []*backend.Volume{b, c} {
		s.canUse(v, larger.Required)
		check.Same(t, string(s.read(v)), "one")
	}
	s.canUse(s.get(v.ID), 64*mib)
}

func TestExt4_GrownWhileServedIsUsedWholeAfterTheNextStart(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	size := backend.Size{Required: 200 * mib}
	if _, err := s.Expand(t.Context(), v.ID, size); err != nil { // CAP_SYS_RESOURCE is missing
		check.Fails(t, err, backend.ErrPrecondition, "has 200Mi", "next start of the server")
		if got := s.get(v.ID); got.Size != 64*mib || !got.Condition.Abnormal {
			t.Errorf("it is said to have %d bytes, its condition %+v", got.Size, got.Condition)
		}
	}
	s.restart()
	s.canUse(s.get(v.ID), size.Required)
	if grown, err := s.Expand(t.Context(), v.ID, size); err != nil || grown.Size != size.Required {
		t.Errorf("asked again: %+v, %v", grown, err)
	}
	check.Same(t, string(s.read(s.get(v.ID))), "one")
}

// withoutResize2fs breaks the program that grows an ext4.
func withoutResize2fs(t *testing.T) (mend func()) {
	t.Helper()
	dir, path := t.TempDir(), os.Getenv("PATH")
	check.OK(t, os.WriteFile(filepath.Join(dir, "resize2fs"), []byte("#!/bin/sh\necho broken >&2; exit 1\n"), 0o700))
	t.Setenv("PATH", dir+":"+path)
	return func() { t.Setenv("PATH", path) }
}

func TestCopy_WhoseExt4DoesNotGrowIsNotReturned(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
	mend := withoutResize2fs(t)
	spec := backend.VolumeSpec{Name: "b", Size: backend.Size{Required: 200 * mib}}
	for range 2 {
		if made, err := s.Restore(t.Context(), "s", spec); err == nil {
			t.Fatalf("made was %+v", made)
		}
	}
	mend()
	b := check.Got(s.Restore(t.Context(), "s", spec))(t)
	s.canUse(b, spec.Size.Required)
}

func TestExt4_ThatDoesNotGrowAtTheStartIsServedAsItIs(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	mend := withoutResize2fs(t)
	s.whileDown(func(pool *local.Backend) error {
		return check.ErrorOf(pool.Expand(t.Context(), v.ID, backend.Size{Required: 200 * mib}))
	})
	if got := s.get(v.ID); got.Size != 64*mib || !got.Condition.Abnormal || got.Access.NFS == nil {
		t.Errorf("it is %+v", got)
	}
	mend()
	s.restart()
	s.canUse(s.get(v.ID), 200*mib)
}

// spoil modifies an ext4 while its server is down.
func (s *server) spoil(v *backend.Volume, requests ...string) {
	s.Helper()
	s.end()
	for _, request := range requests {
		if out, err := exec.Command("debugfs", "-w", "-R", request, s.image(v)).CombinedOutput(); err != nil {
			s.Fatalf("debugfs: %v: %s", err, out)
		}
	}
	s.begin()
}

func (s *server) image(v *backend.Volume) string {
	return filepath.Join(s.pool.Path, "volumes", string(v.ID), "image")
}

func TestExt4_WhoseStartIsLostIsNotServedAndNeverFormattedAgain(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	s.end()
	hostfs.Overwrite(t, s.image(v), 0, make([]byte, mib)...)
	before := check.Got(os.ReadFile(s.image(v)))(t)
	s.begin()
	s.isNotServed(v.ID, "e2fsck -f -y -b 32768")
	if now := check.Got(os.ReadFile(s.image(v)))(t); !bytes.Equal(now, before) {
		t.Error("the image has changed")
	}
}

func TestExt4_IsRepairedBeforeItIsServed(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	s.spoil(v, "set_super_value state 3")
	if got := s.get(v.ID); got.Condition.Abnormal || string(s.read(got)) != "one" {
		t.Errorf("it is %+v", got)
	}
	s.spoil(v, "clri <7>", "set_super_value state 3")
	s.isNotServed(v.ID, "e2fsck -f "+s.image(v))
}

// shutDown ends an xfs as an error of its disk would.
func shutDown(t *testing.T, target string) {
	t.Helper()
	if out, err := exec.Command("xfs_io", "-x", "-c", "shutdown", target).CombinedOutput(); err != nil {
		t.Fatalf("xfs_io: %v: %s", err, out)
	}
}

func TestHealth_ErrorsOfAServedVolumeAreReported(t *testing.T) {
	s := onXFS(t)
	a, b := s.create("a", smallExt4), s.create("b", func(spec *backend.VolumeSpec) { spec.FSType = "xfs" })
	m := check.Got(nodeops.MountAt(s.target(a.ID)))(t)
	hostfs.MeetError(t, nodeops.LoopUnder(m))
	shutDown(t, s.target(b.ID))
	for _, v := range []*backend.Volume{a, b} {
		wait.Until(s.T, "condition of "+string(v.ID), func() bool {
			c := s.get(v.ID).Condition
			return c.Abnormal && c.Reason == backend.FileSystemErrors && strings.Contains(c.Message, "pod of the NFS server")
		})
	}
	s.restart() // both are repaired when they are mounted again
	for _, v := range []*backend.Volume{a, b} {
		if got := s.get(v.ID); got.Condition.Abnormal || got.Access.NFS == nil {
			t.Errorf("it is %+v", got)
		}
	}
}
