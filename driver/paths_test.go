package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestPaths_FromOutsideAreCheckedByTheirForm(t *testing.T) {
	for _, path := range []string{"", "relative", "./here", "/", "//", "/a/../b", "/a/..", "/a\x00b"} {
		if err := parsePath("target_path", path); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "target_path") {
			t.Errorf("parsePath(%q) = %v", path, err)
		}
	}
	for _, path := range []string{"/a", "/a/b/", "/a..b/c", "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"} {
		if err := parsePath("target_path", path); err != nil {
			t.Errorf("parsePath(%q) = %v", path, err)
		}
	}
}

func TestPaths_LinksAboveThemAreFollowedAndTheyThemselvesAreNot(t *testing.T) {
	dir := check.Got(filepath.EvalSymlinks(t.TempDir()))(t)
	check.OK(t, errors.Join(os.Mkdir(dir+"/real", 0o755), os.Symlink(dir+"/real", dir+"/link"), os.Symlink("/etc", dir+"/real/end")))
	for path, want := range map[string]string{dir + "/link/x/": dir + "/real/x", dir + "/link/end": dir + "/real/end", dir + "/link": dir + "/link"} {
		if got, err := resolve(path); err != nil || got != want {
			t.Errorf("resolve(%s) = %s, %v, want %s", path, got, err, want)
		}
	}
	if _, err := resolve(dir + "/missing/x"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("resolve below a missing directory: %v", err)
	}
}

func TestTarget_IsCreatedAndRemovedOnceAndForeignFilesAreKept(t *testing.T) {
	for _, mode := range []backend.Mode{backend.Filesystem, backend.Block} {
		path := filepath.Join(t.TempDir(), "target")
		undo := check.Got(makeTarget(path, mode))(t)
		keep, err := makeTarget(path, mode)
		if err != nil {
			t.Fatalf("what an attempt before left is refused: %v", err)
		}
		keep()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what an attempt before left was removed: %v", err)
		}
		undo()
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("undone, but %v", err)
		}
		if err := removeTarget(path); err != nil {
			t.Errorf("removing what is gone: %v", err)
		}
	}
	full := t.TempDir()
	file := filepath.Join(full, "file")
	check.OK(t, os.WriteFile(file, []byte("precious"), 0o600))
	for _, path := range []string{full, file} {
		if err := removeTarget(path); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), path) {
			t.Errorf("removeTarget(%s) = %v", path, err)
		}
		for _, mode := range []backend.Mode{backend.Filesystem, backend.Block} {
			if _, err := makeTarget(path, mode); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), path) {
				t.Errorf("makeTarget(%s, %s) = %v", path, mode, err)
			}
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
