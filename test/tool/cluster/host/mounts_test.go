package host

import (
	"os"
	"path/filepath"
	"slices"
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

func TestMountinfo_IsReadWithSpacesAndPropagation(t *testing.T) {
	const info = "36 35 98:0 /x /a\\040b rw,noatime shared:7 master:1 - ext4 /dev/vda rw\n" +
		"37 35 0:5 / /c rw - tmpfs none rw\n"
	got, err := parseMounts(info)
	want := []Mount{{"/a b", "ext4", "/dev/vda", "/x", true}, {"/c", "tmpfs", "none", "/", false}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v", got, err)
	}
	if _, err := parseMounts("nonsense\n"); err == nil {
		t.Error("nonsense is taken")
	}
}

func TestMounts_DirectoryWithTheSamePrefixIsNotBelow(t *testing.T) {
	for path, want := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false} {
		if Below(path, "/a/b") != want {
			t.Errorf("Below(%q) is not %t", path, want)
		}
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

func TestMounts_SharingADirectoryTwiceMountsItOnce(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	t.Cleanup(func() { _ = UnmountBelow(dir) })
	for range 2 {
		if err := ShareMounts(dir); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	var at []Mount
	for _, m := range mounts {
		if m.Target == dir {
			at = append(at, m)
		}
	}
	if len(at) != 1 || !at[0].Shared {
		t.Errorf("mounts there: %v", at)
	}
}
