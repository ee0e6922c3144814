//go:build ceph

package cephfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ceph/go-ceph/cephfs"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestVolume_HoldsWhatWasPromisedAndNoMore(t *testing.T) {
	w := newWorld(t, 0)
	v := w.create("a", 16*mib)
	w.write(v, "fits", make([]byte, 12*mib))
	w.refused(w.tryWrite(v, "too much", make([]byte, 64*mib)))
	grown, err := w.backend.Expand(t.Context(), v.ID, backend.Size{Required: 128 * mib})
	if err != nil || grown.Size != 128*mib {
		t.Fatalf("grown is %+v, %v", grown, err)
	}
	wait.For(w, "room for more", func() error { return w.tryWrite(v, "too much", make([]byte, 64*mib)) })
	w.refused(w.tryWrite(v, "more", make([]byte, 128*mib)))
	if got := w.ceph("fs", "subvolume", "info", rig.FileSystem, "a", "--group_name", w.config.Group); !strings.Contains(got, fmt.Sprintf(`"bytes_quota": %d`, 128*mib)) {
		t.Errorf("the quota is not what was requested: %s", got)
	}
	wait.For(w, "its use being counted", func() error {
		got, err := w.backend.Get(t.Context(), v.ID)
		if err != nil || got.Used < 64*mib {
			return fmt.Errorf("%+v, %w", got, err)
		}
		return nil
	})
}

func (w *world) refused(err error) {
	w.Helper()
	if !hasErrno(err, syscall.EDQUOT) && !hasErrno(err, syscall.ENOSPC) {
		w.Fatalf("a write past the size was answered %v", err)
	}
}

func TestVolume_HoldsAsManyFilesAsRequested(t *testing.T) {
	w := newWorld(t, 0)
	v, err := w.backend.Create(t.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 16 * mib}, Inodes: 8})
	if err != nil || v.Inodes != 8 {
		t.Fatalf("%+v, %v", v, err)
	}
	wait.For(w, "the limit of files", func() error { // the file system counts with a delay
		for i := range 64 {
			if err := w.tryWrite(v, fmt.Sprintf("file%d", i), []byte("x")); err != nil {
				w.refused(err)
				return nil
			}
		}
		return errors.New("64 files were made")
	})
}

func TestVolume_IsRefusedWhatTheFileSystemCannotDo(t *testing.T) {
	w := newWorld(t, 0)
	for says, spec := range map[string]backend.VolumeSpec{
		"rbd":         {Mode: backend.Block},
		"ext4":        {FSType: "ext4"},
		"thick":       {Provisioning: backend.Thick},
		"mkfsOptions": {MkfsOptions: []string{"-m", "1"}},
	} {
		spec.Name = "a"
		_, err := w.backend.Create(t.Context(), spec)
		w.want(err, backend.ErrInvalid, says)
	}
	w.empty()
}

func TestVolume_WithDamagedMetadataIsShownAndHidesNoOther(t *testing.T) {
	w := newWorld(t, 0)
	w.create("a", 16*mib)
	w.create("b", 16*mib)
	w.create("c", 16*mib)
	w.set("a", volumeAttr, `{"version": 1, "id"`)
	w.set("c", volumeAttr, `{"version": 99}`)
	all, err := w.backend.List(t.Context())
	if err != nil || len(all) != 3 || !all[0].Condition.Abnormal || all[1].Condition.Abnormal || !all[2].Condition.Abnormal {
		t.Fatalf("%+v, %v", all, err)
	}
	for id, says := range map[backend.ID]string{"a": "is damaged", "c": "newer"} {
		w.want(w.backend.Delete(t.Context(), id), backend.ErrPrecondition, says)
		_, err := w.backend.Create(t.Context(), backend.VolumeSpec{Name: string(id)})
		if err == nil {
			t.Errorf("%s was made again", id)
		}
	}
}

func TestVolume_WhoseQuotaOrFilesWereChangedByHandIsAbnormal(t *testing.T) {
	w := newWorld(t, 0)
	w.create("a", 16*mib)
	b := w.create("b", 16*mib)
	w.ceph("fs", "subvolume", "resize", rig.FileSystem, "a", fmt.Sprint(64*mib), "--group_name", w.config.Group)
	check.OK(t, w.fs().RemoveDir(b.Access.CephFS.Path))
	for id, says := range map[backend.ID]string{"a": "resize", "b": "is gone"} {
		wait.For(w, "the fault being shown", func() error {
			v, err := w.backend.Get(t.Context(), id)
			if err != nil || !v.Condition.Abnormal || !strings.Contains(v.Condition.Message, says) {
				return fmt.Errorf("%+v, %w", v, err)
			}
			return nil
		})
	}
}

// set writes an attribute of a subvolume by hand.
func (w *world) set(name, attr, value string) {
	w.Helper()
	check.OK(w, w.fs().SetXattr("/volumes/"+w.config.Group+"/"+name, attr, []byte(value), cephfs.XattrDefault))
}

func TestStrangers_AreReportedAndNeverTouched(t *testing.T) {
	w := newWorld(t, 0)
	w.create("b", 16*mib)
	w.ceph("fs", "subvolume", "create", rig.FileSystem, "a", fmt.Sprint(32*mib), "--group_name", w.config.Group)
	odd := "/volumes/" + w.config.Group + "/some directory"
	check.OK(t, w.fs().MakeDir(odd, 0o755))
	if _, err := w.backend.Get(t.Context(), "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a stranger is a volume: %v", err)
	}
	check.OK(t, w.backend.Delete(t.Context(), "a"))
	a := w.create("a", 16*mib)
	if !strings.Contains(a.Access.CephFS.Path, "/a.1/") {
		t.Errorf("the volume lies in %s", a.Access.CephFS.Path)
	}
	w.reopen()
	w.config.TrashRetention = backend.NoTrash
	w.reopen()
	all, err := w.backend.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, id := range []backend.ID{"a", "b"} {
		check.OK(t, w.backend.Delete(t.Context(), id))
	}
	names, err := (&group{fs: w.fs(), dir: "/volumes/" + w.config.Group}).names()
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a", "some directory"}) {
		t.Errorf("left are %q, %v", names, err)
	}
	for _, name := range []string{"subvolume=a\n", `subvolume="some directory"`} {
		if got := w.log.String(); !strings.Contains(got, name) {
			t.Errorf("%s was not reported:\n%s", name, got)
		}
	}
}

func TestPool_IsNotBegunWhereOthersKeepSubvolumes(t *testing.T) {
	w := newWorld(t, 0)
	w.ceph("fs", "subvolume", "create", rig.FileSystem, "a", "--group_name", w.config.Group)
	_, err := w.backend.List(t.Context())
	w.want(err, backend.ErrInvalid, w.config.Group, `"a"`)
}

func TestPool_IsTakenByTheLastProcessAndTheOneBeforeSaysSo(t *testing.T) {
	w := newWorld(t, 1*gib)
	w.create("a", 16*mib)
	before := w.backend
	w.open()
	t.Cleanup(func() {
		check.Report(t, before.Close(context.Background()))
	})
	w.create("b", 16*mib)
	host, _ := os.Hostname()
	_, err := before.Create(t.Context(), backend.VolumeSpec{Name: "c", Size: backend.Size{Required: 16 * mib}})
	w.want(err, backend.ErrUnavailable)
	for range 2 {
		_, err = before.Create(t.Context(), backend.VolumeSpec{Name: "c", Size: backend.Size{Required: 16 * mib}})
		w.want(err, backend.ErrUnavailable, "has taken it over", host)
	}
	all, err := w.backend.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}
