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
	absent(t, file+".new")
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
	check.Fails(t, ReplaceFile(file, []byte("new")), nil)
	holds(t, file, "old")
	check.Fails(t, ReplaceFile(filepath.Join(dir, "no", "file"), nil), fs.ErrNotExist) // without its directory
}

func TestReplace_NewFileReplacesNothingAndIsRemovedOnce(t *testing.T) {
	dir := check.Got(os.OpenRoot(t.TempDir()))(t)
	defer dir.Close()
	file := filepath.Join(dir.Name(), "file")
	check.OK(t, errors.Join(WriteNew(dir, "file", []byte("first")), SyncDir(dir, ".")))
	check.Fails(t, WriteNew(dir, "file", []byte("second")), fs.ErrExist)
	holds(t, file, "first")
	check.OK(t, RemoveFile(file))
	check.Fails(t, RemoveFile(file), fs.ErrNotExist) // again
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
	absent(t, at(hostfs.Cut(t, hostfs.XFS, dir), "removed"))
}
