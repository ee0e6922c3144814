//go:build ceph

package cephfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/cephfs"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// large is a volume whose copy takes a while: the manager copies file by file.
func large(w *world) {
	w.Helper()
	v := w.create("a", 256*mib)
	for i := range 16 {
		w.write(v, fmt.Sprintf("file%d", i), make([]byte, 4*mib))
	}
}

func TestCopy_OutlivesItsCallerWhoLearnsHowFarItIs(t *testing.T) {
	w := newWorld(t, 0)
	large(w)
	var err error
	wait.For(w, "the answer saying how far the copy is", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = w.backend.Clone(ctx, "a", backend.VolumeSpec{Name: "b"})
		if err != nil && !errors.Is(err, backend.ErrBusy) {
			t.Fatal(err)
		}
		if err == nil || !strings.Contains(err.Error(), " are there") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	w.want(err, backend.ErrBusy, "create of b", "continues")
	if _, err := w.backend.Get(t.Context(), "b"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("half a copy is a volume: %v", err)
	}
	_, err = w.backend.Clone(t.Context(), "a", backend.VolumeSpec{Name: "b", Size: backend.Size{Required: 300 * mib}})
	w.want(err, backend.ErrExists, "size") // what was begun is of the first request
	v, err := w.backend.Clone(t.Context(), "a", backend.VolumeSpec{Name: "b"})
	if err != nil || v.Size != 256*mib {
		t.Fatalf("%+v, %v", v, err)
	}
	if got := w.read(v, "file15"); len(got) != 4*mib {
		t.Errorf("the copy of a file has %d bytes", len(got))
	}
	if left := w.snapshotsOf("a"); left != "[]" {
		t.Errorf("the source has snapshots: %s", left)
	}
}

func TestCopy_EndsWhenItsVolumeIsDeleted(t *testing.T) {
	w := newWorld(t, 0)
	w.config.TrashRetention = backend.NoTrash
	w.reopen()
	large(w)
	copied := make(chan error, 1)
	go func() {
		_, err := w.backend.Clone(context.Background(), "a", backend.VolumeSpec{Name: "b"})
		copied <- err
	}()
	wait.For(w, "a copy that runs", func() error {
		if n, _ := w.backend.ops.InFlight(); n == 0 || len(copied) > 0 {
			return errors.New("no copy runs")
		}
		begun, err := (&group{fs: w.fs(), dir: "/volumes/" + w.config.Group}).read("b")
		if err == nil && !begun.isCopying() {
			err = errors.New("no copy is recorded")
		}
		return err
	})
	check.OK(t, w.backend.Delete(t.Context(), "b"))
	if err := <-copied; err == nil || !strings.Contains(err.Error(), "was deleted while it was copied") {
		t.Errorf("the copy was answered %v", err)
	}
	check.OK(t, w.backend.Delete(t.Context(), "a"))
	w.empty()
}

func (e *entry) isCopying() bool { return e != nil && e.copies() }

func (w *world) snapshotsOf(name string) string {
	w.Helper()
	return w.ceph("fs", "subvolume", "snapshot", "ls", rig.FileSystem, name, "--group_name", w.config.Group)
}

func TestSnapshot_OfAnotherKeepsItsNameAndItsVolume(t *testing.T) {
	w := newWorld(t, 0)
	w.config.TrashRetention = backend.NoTrash
	w.reopen()
	w.create("a", 16*mib)
	w.ceph("fs", "subvolume", "snapshot", "create", rig.FileSystem, "a", "s", "--group_name", w.config.Group)
	_, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"})
	w.want(err, backend.ErrExists, "Holdfast has not taken")
	if all, err := w.backend.ListSnapshots(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
	check.OK(t, w.backend.Delete(t.Context(), "a"))
	if got := w.snapshotsOf("a"); !strings.Contains(got, `"s"`) {
		t.Errorf("the snapshots are %s", got)
	}
}

// TestCopy_LosesWhatTheDocumentsSay: if Ceph keeps one of these, docs/ceph.md is to say so.
func TestCopy_LosesWhatTheDocumentsSay(t *testing.T) {
	w := newWorld(t, 0)
	source := w.create("a", 256*mib)
	path := func(v *backend.Volume, name string) string { return v.Access.CephFS.Path + "/" + name }
	w.write(source, "file", []byte("one"))
	const length = 32 * mib
	f, err := w.fs().Open(path(source, "holes"), os.O_WRONLY|os.O_CREATE, 0o600)
	check.OK(t, err)
	_, err = f.WriteAt([]byte("x"), length-1)
	for _, err := range []error{
		err, f.Close(),
		w.fs().SetXattr(path(source, "file"), "user.of", []byte("x"), cephfs.XattrDefault),
		w.fs().Link(path(source, "file"), path(source, "link")),
		w.fs().Mknod(path(source, "fifo"), unix.S_IFIFO|0o600, 0),
		w.fs().Chmod(path(source, "file"), 0o751),
	} {
		check.OK(t, err)
	}
	copied, err := w.backend.Clone(t.Context(), "a", backend.VolumeSpec{Name: "b"})
	check.OK(t, err)
	stat := func(v *backend.Volume, name string) *cephfs.CephStatx {
		st, err := w.fs().Statx(path(v, name), cephfs.StatxBasicStats, 0)
		if err != nil {
			return &cephfs.CephStatx{}
		}
		return st
	}
	kept := func(v *backend.Volume) map[string]bool {
		_, err := w.fs().GetXattr(path(v, "file"), "user.of")
		names := check.Got(w.cluster.Command(t.Context(), "rados", "--pool", rig.FileSystem+".data", "ls", "--all"))(t)
		return map[string]bool{
			"content":    string(w.read(v, "file")) == "one" && string(w.read(v, "link")) == "one" && len(w.read(v, "holes")) == length,
			"mode":       stat(v, "file").Mode&0o777 == 0o751,
			"attributes": err == nil,
			"hard links": stat(v, "file").Nlink == 2,
			"fifos":      stat(v, "fifo").Mode&unix.S_IFMT == unix.S_IFIFO,
			"holes":      strings.Count(names, fmt.Sprintf("%x.", stat(v, "holes").Inode)) == 1,
		}
	}
	for what, is := range kept(source) {
		if !is {
			t.Errorf("%s: not in the source", what)
		}
	}
	for what, is := range kept(copied) {
		if want := what == "content" || what == "mode"; is != want {
			t.Errorf("%s: kept is %t, want %t", what, is, want)
		}
	}
}
