package nodeops

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProject_CoversATreeAndLaterFiles(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		outside := write(t, filepath.Join(dir, "outside"), "not ours")
		tree := filepath.Join(dir, "tree")
		sub := filepath.Join(tree, "sub", "deeper")
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		file := write(t, filepath.Join(sub, "file"), "content")
		if err := os.Symlink(outside, filepath.Join(sub, "link")); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(sub, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		const id = 77
		for range 2 {
			if err := SetProject(tree, id); err != nil {
				t.Fatal(err)
			}
		}
		later := write(t, filepath.Join(sub, "later"), "content")
		for path, inherits := range map[string]bool{tree: true, sub: true, file: false, later: false} {
			if got, inherit, err := ProjectOf(path); err != nil || got != id || inherit && !inherits || !inherit && inherits {
				t.Errorf("%s: project %d, inherited %t, %v", path, got, inherit, err)
			}
		}
		if got, _, err := ProjectOf(outside); err != nil || got != 0 {
			t.Errorf("what a link leads to has project %d, %v", got, err)
		}
		if bytes, inodes, err := q.Usage(id); err != nil || inodes != 5 || bytes <= 0 {
			t.Errorf("%d bytes and %d inodes are used, %v, want 5: tree, sub, deeper, file, later", bytes, inodes, err)
		}
	})
}

func TestProject_StopsAtOtherFileSystems(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, _ *ProjectQuota) {
		inner := filepath.Join(dir, "inner")
		if err := os.Mkdir(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unmountAll(t, inner) })
		command(t, "mount", "-t", "tmpfs", "tmpfs", inner)
		write(t, filepath.Join(inner, "file"), "")
		if err := SetProject(dir, 77); err != nil {
			t.Error(err)
		}
	})
}
