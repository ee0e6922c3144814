//go:build ceph

package site

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// small is the Ceph of all tests here; nil where none is installed.
var small *rig.Cluster

func TestMain(m *testing.M) { os.Exit(rig.Main(m.Run, rig.Options{MDS: true}, &small)) }

var (
	silent = slog.New(slog.DiscardHandler)
	count  atomic.Int32
)

// configOf is a pool with users of its own that may no more than the pool and its nodes need.
func configOf(t *testing.T, engine string) Config {
	t.Helper()
	rig.Require(t)
	name := fmt.Sprintf("pool%d", count.Add(1))
	dir := t.TempDir()
	c := Config{Pool: name, Engine: engine, KeyFile: filepath.Join(dir, "key"), NodeKeyFile: filepath.Join(dir, "node-key"), TrashRetention: backend.NoTrash, Ceph: ceph.Config{
		Monitors: []string{"v2:" + small.Monitor}, FSID: small.FSID, User: name, NodeUser: name + "-node", Patience: 20 * time.Second,
	}}
	if engine == RBD {
		c.Ceph.Pool = newPool(t)
	} else {
		c.Ceph.FileSystem, c.Ceph.Namespace = rig.FileSystem, name
	}
	check.OK(t, c.Complete())
	p := &pool{Config: c}
	writeKey(t, c.KeyFile, newUser(t, c.Ceph.User, p.maker().caps))
	writeKey(t, c.NodeKeyFile, newUser(t, c.Ceph.NodeUser, p.mounter().caps))
	return c
}

func newPool(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("images%d", count.Add(1))
	check.OK(t, small.CreateRBDPool(t.Context(), name, 0))
	t.Cleanup(func() { _ = small.DeletePool(context.Background(), name) })
	return name
}

func newUser(t *testing.T, name string, caps map[string]string) (key string) {
	t.Helper()
	var all []string
	for of, what := range caps {
		all = append(all, of, what)
	}
	key = check.Got(small.CreateUser(t.Context(), name, all...))(t)
	return key
}

func writeKey(t *testing.T, file, key string) {
	t.Helper()
	check.OK(t, os.WriteFile(file+".new", []byte(key+"\n"), 0o600))
	check.OK(t, os.Rename(file+".new", file))
}
