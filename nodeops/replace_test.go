package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

func TestReplace_FileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, content := range []string{"first", "", "the third, which is longer"} {
		check.OK(t, ReplaceFile(file, []byte(content)))
		holds(t, file, content)
	}
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil || s.Mode&0o777 != 0o600 {
		t.Errorf("mode %o, %v", s.Mode, err)
	}
	if _, err := os.Lstat(file + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what it was written to is left: %v", err)
	}
}

func TestReplace_LeftoverOfACrashIsNeitherReadNorFollowed(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	for name, left := range map[string]func() error{
		"a part": func() error { return os.WriteFile(file+".new", []byte("a part that is longer than all"), 0o600) },
		"a link": func() error { return os.Symlink("other", file+".new") },
	} {
		check.OK(t, errors.Join(os.WriteFile(other, []byte("other"), 0o600), left()))
		check.OK(t, ReplaceFile(file, []byte(name)))
		holds(t, file, name)
		holds(t, other, "other")
	}
}

func TestReplace_FailureLeavesTheFileAsItIs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	check.OK(t, errors.Join(ReplaceFile(file, []byte("old")), os.MkdirAll(filepath.Join(file+".new", "full"), 0o700)))
	if err := ReplaceFile(file, []byte("new")); err == nil {
		t.Error("it was replaced over a directory")
	}
	holds(t, file, "old")
	if err := ReplaceFile(filepath.Join(dir, "no", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its directory: %v", err)
	}
}

func TestReplace_NewFileReplacesNothing(t *testing.T) {
	dir := check.Got(os.OpenRoot(t.TempDir()))(t)
	defer dir.Close()
	check.OK(t, errors.Join(WriteNew(dir, "file", []byte("first")), SyncDir(dir, ".")))
	if err := WriteNew(dir, "file", []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it was written again: %v", err)
	}
	holds(t, filepath.Join(dir.Name(), "file"), "first")
}

func TestReplace_FileIsRemovedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check.OK(t, errors.Join(ReplaceFile(file, nil), RemoveFile(file)))
	if err := RemoveFile(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("again: %v", err)
	}
}

// On xfs, where the content of a file is lost unless it was synced before the rename. ext4 syncs a file that replaces
// another one automatically.
func TestReplace_ReplacedCreatedOrRemovedFileSurvivesAPowerCut(t *testing.T) {
	dir := hostfs.New(t, hostfs.XFS, 320*mib)
	root := check.Got(os.OpenRoot(dir))(t)
	defer root.Close()
	at := func(dir, name string) string { return filepath.Join(dir, name) }
	check.OK(t, errors.Join(root.Mkdir("sub", 0o700), ReplaceFile(at(dir, "removed"), []byte("old")), SyncDir(root, ".")))
	for _, step := range []struct {
		name string
		do   func() error
		file string
		want string
	}{
		{"made", func() error { return ReplaceFile(at(dir, "file"), []byte("old")) }, "file", "old"},
		{"replaced", func() error { return ReplaceFile(at(dir, "file"), []byte("new")) }, "file", "new"},
		{"replaced below", func() error { return Replace(root, "sub/file", []byte("below")) }, "sub/file", "below"},
		{"new, and its name synced", func() error {
			return errors.Join(WriteNew(root, "sub/new", []byte("new")), SyncDir(root, "sub"))
		}, "sub/new", "new"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		t.Run(step.name, func(t *testing.T) { holds(t, at(hostfs.Cut(t, hostfs.XFS, dir), step.file), step.want) })
	}
	check.OK(t, RemoveFile(at(dir, "removed")))
	if _, err := os.Lstat(at(hostfs.Cut(t, hostfs.XFS, dir), "removed")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed is there again: %v", err)
	}
}
