package nodeops

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestProject_CoversATreeAndLaterFiles(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		outside := write(t, filepath.Join(dir, "outside"), "not ours")
		tree := filepath.Join(dir, "tree")
		sub := filepath.Join(tree, "sub", "deeper")
		check.OK(t, os.MkdirAll(sub, 0o755))
		file := write(t, filepath.Join(sub, "file"), "content")
		check.OK(t, os.Symlink(outside, filepath.Join(sub, "link")))
		check.OK(t, unix.Mkfifo(filepath.Join(sub, "pipe"), 0o600))
		const id = 77
		for range 2 {
			check.OK(t, SetProject(tree, id))
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
		check.OK(t, os.Mkdir(inner, 0o755))
		t.Cleanup(func() { unmountAll(t, inner) })
		command(t, "mount", "-t", "tmpfs", "tmpfs", inner)
		write(t, filepath.Join(inner, "file"), "")
		check.Report(t, SetProject(dir, 77))
	})
}
