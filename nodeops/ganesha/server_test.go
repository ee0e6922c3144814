package ganesha

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestServer_ExportBeforeTheStartIsServedFromTheStart(t *testing.T) {
	exports := []Export{newExport(t, 1), newExport(t, 152), newExport(t, 65535)}
	r := run(t, exports...)
	r.is(exports...)
	if !r.Ready() {
		t.Error("it serves and is not ready")
	}
	r.stop()
	if r.Ready() {
		t.Error("it is ready after its end")
	}
	check.Fails(t, r.Put(t.Context(), exports[0]), nil)
	check.Fails(t, r.Run(t.Context()), nil)
}

func TestServer_ExportsComeChangeAndGoWhileItServes(t *testing.T) {
	one, two := newExport(t, 1), newExport(t, 152)
	r := run(t)
	r.is()
	r.put(one)
	r.put(one) // idempotent
	r.put(two)
	for _, change := range []func(*Export){
		func(e *Export) { e.Pseudo = one.Pseudo },
		func(e *Export) { e.Filesystem = one.Filesystem },
	} {
		e := newExport(t, 3)
		change(&e)
		check.Fails(t, r.Put(t.Context(), e), ErrConflict)
	}
	r.is(one, two)

	two.Squash, two.ReadOnly, two.Clients = AllSquash, true, []string{"10.0.0.0/8", "fd00::/64", "192.168.7.9"}
	r.put(two)
	r.is(one, two)
	body := check.Got(r.up().admin.call(r.within(), "ExportMgr", "DisplayExport", two.ID))(t)
	clients := ""
	for _, c := range body[4].([][]any) {
		clients += c[0].(string) + " "
	}
	check.Same(t, clients, "10.0.0.0/8 fd00::/64 192.168.7.9/32 ")

	moved := newExport(t, 1)
	moved.Pseudo, moved.Filesystem = "/elsewhere", "1.2"
	r.put(moved)
	r.is(moved, two)
	for range 2 { // idempotent
		check.Report(t, r.Remove(r.within(), 1))
	}
	r.is(two)
}

func TestServer_UnusualPathIsServedAsItIs(t *testing.T) {
	dir := filepath.Join(newExport(t, 1).Path, "a b;}{#=,%include $(x)`~*?[!]&|<> EXPORT { }")
	check.OK(t, os.Mkdir(dir, 0o755))
	r := run(t, exportOf(1, dir))
	r.is(exportOf(1, dir))
	other := exportOf(2, dir)
	r.put(other)
	r.is(exportOf(1, dir), other)
}

func TestServer_OnlyRealDirectoriesAreServed(t *testing.T) {
	dir := newExport(t, 1).Path
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	check.OK(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("/etc", link)))
	s := check.Got(New(Config{RunDir: "/run/x", RecoveryDir: "/run/y", Name: "nfs.one"}))(t)
	for _, path := range []string{file, link, filepath.Join(link, "default"), filepath.Join(dir, "missing")} {
		if err := s.Put(t.Context(), exportOf(1, path)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// clones makes two file systems with the same UUID.
func clones(t *testing.T) (original, clone string) {
	t.Helper()
	original = hostfs.New(t, hostfs.Ext4, 64<<20)
	disk := filepath.Join(filepath.Dir(original), "disk")
	clone = filepath.Join(filepath.Dir(original), "clone")
	copied := filepath.Join(filepath.Dir(original), "disk2")
	const script = `sync -f "$1"; cp --sparse=always "$2" "$3"; mkdir "$4"; mount -o loop "$3" "$4"`
	command(t, "sh", "-ec", script, "sh", original, disk, copied, clone)
	return original, clone
}

func TestServer_RefusedExportLeavesTheFormerOne(t *testing.T) {
	original, clone := clones(t)
	first, second := exportOf(1, original), newExport(t, 2)
	r := run(t, first, second)
	r.refused(exportOf(3, clone)) // of two file systems with the same UUID, Ganesha exports one
	r.is(first, second)
	changed := second
	changed.Path = clone
	r.refused(changed)
	r.is(first, second)
}

func TestServer_ExportThatFailsAtTheStartBlocksNoOtherAndIsReportedOnce(t *testing.T) {
	c := testConfig(t)
	c.Interval = time.Millisecond
	log := hear(t, &c)
	one, gone, two := newExport(t, 1), newExport(t, 2), newExport(t, 3)
	r := prepare(t, c, one, gone, two)
	check.OK(t, os.Remove(gone.Path))
	r.start()
	l := r.up()
	served := func() int { return len(check.Got(l.admin.exportIDs(r.within()))(t)) }
	check.Same(t, served(), 2) // those that are there
	const refusal = "an export is not served"
	if reported := log.await(t, refusal); !strings.Contains(reported, gone.Path) || log.index("is up") < log.index(refusal) {
		t.Errorf("before it is up it should report %s: %s", gone.Path, reported)
	}
	wait.Until(t, "more refusals", func() bool { return log.count("Could not create export for") >= 5 })
	check.Same(t, log.count("is not served"), 1)
	check.OK(t, os.Mkdir(gone.Path, 0o755))
	wait.Until(t, "the export, which no caller puts again", func() bool { return served() == 3 })
	r.is(one, gone, two)
}

func TestServer_UnexportedDirectoryCanBeUnmounted(t *testing.T) {
	for _, kind := range []hostfs.Kind{hostfs.Ext4, hostfs.XFS, hostfs.Btrfs} {
		mounted := hostfs.New(t, kind, 320<<20)
		r := run(t, newExport(t, 1), exportOf(2, mounted))
		check.OK(t, r.Remove(r.within(), 2))
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		r.stop()
	}
}

func TestServer_ExportUnknownToGaneshaIsRemovedAndOwnProbesAreNoClients(t *testing.T) {
	one, two := newExport(t, 1), newExport(t, 2)
	r := run(t, one, two)
	check.OK(t, r.up().admin.remove(1))
	check.Report(t, r.Remove(r.within(), 1))
	r.is(two)
	check.OK(t, probe(r.within(), r.config.address(), patient))
	check.Same(t, len(check.Got(r.Clients(t.Context()))(t)), 0)
	r.stop()
	check.Fails(t, check.ErrorOf(r.Clients(t.Context())), nil)
}

func TestServer_PutThatTimesOutIsReported(t *testing.T) {
	c := testConfig(t)
	s := check.Got(New(c))(t)
	s.begun = true // and Ganesha does not run
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Fails(t, s.Put(ctx, newExport(t, 1)), context.Canceled)
}
