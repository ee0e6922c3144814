//go:build ceph

package ceph

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// step is how long an unmount may wait for a cluster that may be dead.
const step = 10 * time.Second

func mounted(ctx context.Context, t *testing.T, c nodeops.CephFS) (target string, m *nodeops.Mount) {
	t.Helper()
	target = t.TempDir()
	var first nodeops.CephClient
	accept := func(c nodeops.CephClient) error {
		first = c
		return nil
	}
	check.OK(t, nodeops.MountCephFS(ctx, c, target, accept))
	t.Cleanup(func() {
		check.Report(t, nodeops.UnmountShared(context.WithoutCancel(ctx), target, step, 0))
	})
	m, err := nodeops.MountAt(target)
	if err != nil || m == nil {
		t.Fatalf("mounted is %+v, %v", m, err)
	}
	if client, err := nodeops.CephFSClient(ctx, m); err != nil || client != first {
		t.Errorf("it is mounted as %+v, %v; before, it was %+v", client, err, first)
	}
	return target, m
}

func TestGuestCephFS_IsMountedAndKnown(t *testing.T) {
	ctx, w := onGuest(t)
	c := w.directory(t, "shared")
	c.Options = []string{"nosuid", "wsize=1048576"}
	target, m := mounted(ctx, t, c)
	if !c.ShownBy(m) {
		t.Errorf("%+v is not known", m)
	}
	for name, change := range map[string]func(*nodeops.CephFS){
		"of another cluster":        func(c *nodeops.CephFS) { c.Cluster.FSID = "01234567-89ab-cdef-0123-456789abcdef" },
		"of another file system":    func(c *nodeops.CephFS) { c.FileSystem = "other" },
		"of the directory above it": func(c *nodeops.CephFS) { c.Path = filepath.Dir(c.Path) },
	} {
		other := c
		if change(&other); other.ShownBy(m) {
			t.Errorf("%+v is taken for one %s", m, name)
		}
	}
	client, err := nodeops.CephFSClient(ctx, m)
	if err != nil || !strings.HasPrefix(client.ID, "client.") || len(client.ID) < len("client.1") {
		t.Errorf("the client is %+v, %v", client, err)
	}
	file := filepath.Join(target, "file")
	check.OK(t, os.WriteFile(file, []byte("holdfast"), 0o600))
	check.OK(t, nodeops.UnmountShared(ctx, target, step, 0))
	if err := nodeops.UnmountShared(ctx, target, step, 0); err != nil {
		t.Errorf("unmounting what is gone: %v", err)
	}
	again, _ := mounted(ctx, t, w.directory(t, "shared"))
	if got, err := os.ReadFile(filepath.Join(again, "file")); err != nil || string(got) != "holdfast" {
		t.Errorf("it reads %q, %v", got, err)
	}
}

func TestGuestCephFS_ForReadersRefusesWrites(t *testing.T) {
	ctx, w := onGuest(t)
	c := w.directory(t, "shared")
	c.Options = []string{"ro"}
	target, m := mounted(ctx, t, c)
	if err := os.WriteFile(filepath.Join(target, "no"), nil, 0o600); !errors.Is(err, unix.EROFS) || !m.ReadOnly {
		t.Errorf("%+v: %v", m, err)
	}
}

func TestGuestCephFS_QuotaHolds(t *testing.T) {
	ctx, w := onGuest(t)
	target, m := mounted(ctx, t, w.directory(t, "shared"))
	usage, err := nodeops.StatfsShared(ctx, m)
	if err != nil || usage.Total != 100*mib {
		t.Errorf("its size is %+v, %v", usage, err)
	}
	file := filepath.Join(target, "big")
	defer os.Remove(file)
	f, err := os.Create(file)
	check.OK(t, err)
	defer f.Close()
	total := 0
	for block := make([]byte, mib); err == nil && total < 1000*mib; total += mib {
		if _, err = f.Write(block); err == nil {
			err = f.Sync()
		}
	}
	if !errors.Is(err, unix.EDQUOT) || total > 120*mib { // a client may exceed it by a tenth
		t.Errorf("%d bytes were written to 100 MiB, then %v", total, err)
	}
}

func TestGuestCephFS_WhatCannotBeMountedIsSaidClearlyAndLeavesNothing(t *testing.T) {
	ctx, w := onGuest(t)
	for name, test := range map[string]struct {
		change func(*nodeops.CephFS)
		want   string
	}{
		"no directory":     {func(c *nodeops.CephFS) { c.Path += "x" }, "no such directory"},
		"no file system":   {func(c *nodeops.CephFS) { c.FileSystem = "nothing" }, "file system"},
		"another's key":    {func(c *nodeops.CephFS) { c.Cluster.Key = w.as(t, "node").Key }, "refuses user files"},
		"no such user":     {func(c *nodeops.CephFS) { c.Cluster.User = "unknown" }, "refuses user unknown"},
		"no rights":        {func(c *nodeops.CephFS) { c.Cluster = w.as(t, "stranger") }, "refuses user stranger"},
		"no monitor":       {func(c *nodeops.CephFS) { c.Cluster.Monitors = []string{"v2:" + hostAddress + ":9"} }, "monitors answers at"},
		"no host there":    {func(c *nodeops.CephFS) { c.Cluster.Monitors = []string{"v2:10.0.0.77:3300"} }, "monitors answers at"},
		"another cluster":  {func(c *nodeops.CephFS) { c.Cluster.FSID = "01234567-89ab-cdef-0123-456789abcdef" }, "another cluster"},
		"a foreign option": {func(c *nodeops.CephFS) { c.Options = []string{"name=admin"} }, "name=admin"},
		"a path of dots":   {func(c *nodeops.CephFS) { c.Path = "/volumes/../etc" }, "must be absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			c, target := w.directory(t, "shared"), t.TempDir()
			test.change(&c)
			err := nodeops.MountCephFS(ctx, c, target, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
				_ = nodeops.UnmountShared(ctx, target, step, 0)
			}
			t.Log(err)
			if m, err := nodeops.MountAt(target); err != nil || m != nil {
				t.Errorf("mounted is %+v, %v", m, err)
			}
		})
	}
}

func TestGuestCephFS_OldMessengerAndSecureWorkToo(t *testing.T) {
	ctx, w := onGuest(t)
	old, secure := w.directory(t, "shared"), w.directory(t, "shared")
	old.Cluster.Monitors = []string{"v1:" + w.MonitorV1}
	secure.Cluster.Secure = true
	mounted(ctx, t, old)
	mounted(ctx, t, secure)
}

func TestGuestCephFS_TreeWithTheNameOfItsSnapshotsIsRefused(t *testing.T) {
	ctx, w := onGuest(t)
	target, _ := mounted(ctx, t, w.directory(t, "shared"))
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(target, "tree of a "+name)
		check.OK(t, errors.Join(os.MkdirAll(filepath.Join(src, "deep"), 0o700), make(filepath.Join(src, "deep", ".snap")), os.Mkdir(dst, 0o700)))
		if _, err := nodeops.SyncTree(ctx, dst, src, func(int64) {}); !errors.Is(err, nodeops.ErrCannotKeep) || !strings.Contains(err.Error(), "deep/.snap: ") {
			t.Errorf("a %s: %v", name, err)
		}
		check.Report(t, os.RemoveAll(dst))
	}
}
