package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if strings.Contains(","+os.Getenv("HOLDFAST_REQUIRE")+",", ",root,") {
			t.Fatal("HOLDFAST_REQUIRE names root, and this process has not got it")
		}
		t.Skip("only root mounts")
	}
}

func TestMounts_RemovingATreeUnmountsAndSparesWhatWasMounted(t *testing.T) {
	needRoot(t)
	scratch := t.TempDir()
	outside, tree := filepath.Join(scratch, "outside"), filepath.Join(scratch, "tree")
	for _, dir := range []string{outside, filepath.Join(tree, "bind"), filepath.Join(tree, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	keep := filepath.Join(outside, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = UnmountBelow(scratch) })
	if err := unix.Mount(outside, filepath.Join(tree, "bind"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", filepath.Join(tree, "tmp"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Create(filepath.Join(tree, "tmp", "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := RemoveTree(tree); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tree); err == nil {
		t.Error("the tree is still there")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file outside of the tree is gone: %v", err)
	}
}
