package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// wipeable is a pool with something in its trash, and files of its own beside.
func wipeable(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"pool.json", "disk.json", ".trash/volumes.a.1/image", ".tmp/b/meta.json", "groups/g/meta.json"}, more...) {
		path := filepath.Join(dir, name)
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.OK(t, os.WriteFile(path, []byte("{}"), 0o600))
	}
	for _, d := range []string{"volumes", "snapshots"} {
		check.OK(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	return dir
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var found []string
	check.OK(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			found = append(found, name)
		}
		return err
	}))
	return strings.Join(found, " ")
}

func TestCleanup_PoolWithoutVolumesIsWipedAndOtherFilesStay(t *testing.T) {
	dir := wipeable(t, "notes.txt", "lost+found/x")
	out := check.Got(call(t, "cleanup", "--path", dir))(t)
	expects(t, out,
		"removed .trash/volumes.a.1\n", "removed .tmp/b\n", "removed groups/g\n", "removed pool.json\n", "is wiped", "left alone, since Holdfast did not write it: notes.txt\n",
	)
	if left := listing(t, dir); left != "disk.json lost+found/x notes.txt" {
		t.Errorf("left is %s", left)
	}
	dir = wipeable(t)
	for _, removed := range []string{"removed pool.json", "is wiped: 0 removed"} {
		if out, err := call(t, "cleanup", "--path", dir); err != nil || !strings.Contains(out, removed) || listing(t, dir) != "disk.json" {
			t.Errorf("%q, %v; left is %s", out, err, listing(t, dir))
		}
	}
	if _, err := call(t, "cleanup", "--path", filepath.Join(dir, "nothing")); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

func TestCleanup_WhatMayBeNeededIsLeftAlone(t *testing.T) {
	thesis := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(thesis, "thesis.tex"), nil, 0o600))
	for dir, want := range map[string]string{
		wipeable(t, "volumes/v/meta.json"):   "volumes/v",
		wipeable(t, "snapshots/s/meta.json"): "snapshots/s",
		thesis:                               "thesis.tex",
	} {
		before := listing(t, dir)
		if _, err := call(t, "cleanup", "--path", dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal that names %s", err, want)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("left is %s, of %s", after, before)
		}
	}
}

func TestCleanup_LinkInAPoolDoesNotLeadOutOfIt(t *testing.T) {
	outside := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o600))
	dir := wipeable(t)
	check.OK(t, os.RemoveAll(filepath.Join(dir, ".trash")))
	for _, name := range []string{".trash", ".tmp/link"} {
		check.OK(t, os.Symlink(outside, filepath.Join(dir, name)))
	}
	_, err := call(t, "cleanup", "--path", dir)
	if err == nil {
		t.Error("a trash that is a link elsewhere was emptied")
	}
	if listing(t, outside) != "keep" {
		t.Error("what is outside is gone")
	}
}

func TestCleanup_DirectoryBeneathADiskIsNotWipedInItsPlace(t *testing.T) {
	state := t.TempDir()
	dir, record := filepath.Join(state, "pools", "fast"), filepath.Join(state, "disks", "fast.json")
	for _, d := range []string{dir, filepath.Dir(record)} {
		check.OK(t, os.MkdirAll(d, 0o700))
	}
	write := func(path, text string) {
		t.Helper()
		check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, err := call(t, append([]string{"cleanup", "--state-dir", state}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want a refusal that says %s", args, out, err, want)
		}
	}
	refused("no record", "--path", dir, "--disk")
	write(record, `{"pool":"fast","uuid":"the-uuid","device":"/dev/sdb"}`)
	refused("UUID the-uuid, was /dev/sdb", "--path", dir)
	refused("UUID the-uuid, was /dev/sdb", "--path", t.TempDir(), "--pool", "fast")
	refused("such as fast", "--path", dir, "--pool", "../fast")
	if _, err := call(t, "cleanup", "--state-dir", state, "--path", t.TempDir()); err != nil {
		t.Errorf("a directory that is no disk's: %v", err)
	}

	write(filepath.Join(dir, "disk.json"), "{}") // it is mounted
	write(filepath.Join(dir, "pool.json"), "{}")
	for range 2 {
		check.Got(call(t, "cleanup", "--state-dir", state, "--path", dir, "--disk"))(t)
		if left := listing(t, dir); left != "disk.json" {
			t.Errorf("left is %s", left)
		}
	}
}

func TestCleanup_PoolIsWipedWhenTheProcessThatServesItHasEnded(t *testing.T) {
	dir := t.TempDir()
	pool := check.Got(local.ParsePool("name=p,path="+dir, parseDuration))(t)
	storage := check.Got(local.Open(t.Context(), []local.PoolConfig{pool}, slog.New(slog.DiscardHandler)))(t)
	before := listing(t, dir)
	if _, err := call(t, "cleanup", "--path", dir); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), "is being served") || listing(t, dir) != before {
		t.Errorf("while it is served: %v; left is %s, of %s", err, listing(t, dir), before)
	}
	check.OK(t, storage.Close(t.Context()))
	check.Got(call(t, "cleanup", "--path", dir))(t)
	if left := listing(t, dir); left != "" {
		t.Errorf("left is %s", left)
	}
}

func TestCleanup_DeepTreeOfATenantIsWiped(t *testing.T) {
	dir := wipeable(t)
	at := check.Got(os.OpenRoot(filepath.Join(dir, ".trash")))(t)
	for range 300 {
		check.OK(t, at.Mkdir("d", 0o700))
		below, err := at.OpenRoot("d")
		check.OK(t, errors.Join(err, at.Close()))
		at = below
	}
	check.OK(t, at.Close())
	var was unix.Rlimit
	check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	few := unix.Rlimit{Cur: 200, Max: was.Max} // a descriptor for each level is more
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() {
		check.Report(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	}()
	check.Got(call(t, "cleanup", "--path", dir))(t)
	if left := listing(t, dir); left != "disk.json" {
		t.Errorf("left is %s", left)
	}
}
