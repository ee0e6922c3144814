package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, content := range []string{"first", "", "the third, which is longer"} {
		if err := ReplaceFile(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
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

func TestWhatACrashLeftOfAReplacementIsNeitherReadNorFollowed(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	for name, left := range map[string]func() error{
		"a part": func() error { return os.WriteFile(file+".new", []byte("a part that is longer than all"), 0o600) },
		"a link": func() error { return os.Symlink("other", file+".new") },
	} {
		if err := errors.Join(os.WriteFile(other, []byte("other"), 0o600), left()); err != nil {
			t.Fatal(err)
		}
		if err := ReplaceFile(file, []byte(name)); err != nil {
			t.Fatal(err)
		}
		holds(t, file, name)
		holds(t, other, "other")
	}
}

func TestAFileThatCannotBeReplacedStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(ReplaceFile(file, []byte("old")), os.MkdirAll(filepath.Join(file+".new", "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(file, []byte("new")); err == nil {
		t.Error("it was replaced over a directory")
	}
	holds(t, file, "old")
	if err := ReplaceFile(filepath.Join(dir, "no", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its directory: %v", err)
	}
}

func TestANewFileTakesNobodysPlace(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(WriteNew(dir, "file", []byte("first")), SyncDir(dir, ".")); err != nil {
		t.Fatal(err)
	}
	if err := WriteNew(dir, "file", []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it was written again: %v", err)
	}
	holds(t, filepath.Join(dir.Name(), "file"), "first")
}

func TestAFileIsRemovedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(ReplaceFile(file, nil), RemoveFile(file)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveFile(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("again: %v", err)
	}
}
