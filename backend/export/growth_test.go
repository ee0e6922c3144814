package export

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
		if got := s.read(v); string(got) != "one" {
			t.Errorf("%s holds %q", v.ID, got)
		}
	}
	s.canUse(s.get(v.ID), 64*mib)
}

func TestExt4_GrownWhileServedIsUsedWholeAfterTheNextStart(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	size := backend.Size{Required: 200 * mib}
	if _, err := s.Expand(t.Context(), v.ID, size); err != nil { // CAP_SYS_RESOURCE is missing
		s.want(err, backend.ErrPrecondition, "209715200", "next start of the server")
		if got := s.get(v.ID); got.Size != 64*mib || !got.Condition.Abnormal {
			t.Errorf("it is said to have %d bytes, its condition %+v", got.Size, got.Condition)
		}
	}
	s.restart()
	s.canUse(s.get(v.ID), size.Required)
	if grown, err := s.Expand(t.Context(), v.ID, size); err != nil || grown.Size != size.Required {
		t.Errorf("asked again: %+v, %v", grown, err)
	}
	if got := s.read(s.get(v.ID)); string(got) != "one" {
		t.Errorf("it holds %q", got)
	}
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
	s.end()
	var err error
	if s.local, err = s.openLocal(); err != nil {
		t.Fatal(err)
	}
	check.Got(s.local.Expand(t.Context(), v.ID, backend.Size{Required: 200 * mib}))(t)
	check.OK(t, s.local.Close(t.Context()))
	mend := withoutResize2fs(t)
	s.begin()
	if got := s.get(v.ID); got.Size != 64*mib || !got.Condition.Abnormal || got.Access.NFS == nil {
		t.Errorf("it is %+v", got)
	}
	mend()
	s.restart()
	s.canUse(s.get(v.ID), 200*mib)
}
