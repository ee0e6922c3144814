//go:build ceph

package rbd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// small is the Ceph of all tests here; nil where none is installed.
var small *rig.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(crashing) != "" { // it uses the Ceph of the process that has started it
		os.Exit(m.Run())
	}
	os.Exit(rig.Main(m.Run, rig.Options{}, &small))
}

const mib = 1 << 20

var (
	silent = slog.New(slog.DiscardHandler)
	pools  atomic.Int64
)

// patience is longer than any call takes on a busy machine.
const patience = time.Minute

// newPool makes a pool, with an account that may do no more than docs say, and returns how to reach it.
func newPool(t testing.TB, quota int64) ceph.Config {
	t.Helper()
	rig.Require(t)
	name := fmt.Sprintf("pool%d", pools.Add(1))
	ctx := context.Background()
	check.OK(t, small.CreateRBDPool(ctx, name, quota))
	t.Cleanup(func() {
		check.Report(t, small.DeletePool(ctx, name))
	})
	key := check.Got(small.CreateUser(ctx, name, "mon", "profile rbd", "osd", "profile rbd pool="+name))(t)
	return ceph.Config{Monitors: []string{"v2:" + small.Monitor}, FSID: small.FSID, User: name, Key: ceph.Key(key), Pool: name, Patience: patience}
}

// namespace makes a part of a pool, which is as good as one and sooner there.
func namespace(t testing.TB, at ceph.Config, name string) string {
	t.Helper()
	check.Got(small.Command(context.Background(), "rbd", "namespace", "create", at.Pool+"/"+name))(t)
	return name
}

// openWith serves a new pool with some volumes.
func openWith(t testing.TB, c Config, volumes ...string) (at ceph.Config, b *Backend, end func()) {
	t.Helper()
	at = newPool(t, 0)
	b, end = open(t, at, c)
	check.OK(t, created(context.Background(), b, volumes...))
	return at, b, end
}

// open serves a pool until the test ends, or what it returns is called.
func open(t testing.TB, at ceph.Config, c Config) (b *Backend, end func()) {
	t.Helper()
	cluster := check.Got(ceph.New(at, silent))(t)
	b = check.Got(Open(context.Background(), cluster, c, silent))(t)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		for _, closing := range []func(context.Context) error{b.Close, cluster.Close} {
			check.Report(t, closing(context.Background()))
		}
	}
	t.Cleanup(end)
	return b, end
}

// hands reaches the images of a pool as a node does.
func hands(t testing.TB, at ceph.Config, f func(*rados.IOContext)) {
	t.Helper()
	conn := check.Got(rados.NewConnWithUser("admin"))(t)
	check.OK(t, conn.ReadConfigFile(small.Dir+"/ceph.conf"))
	check.OK(t, conn.Connect())
	defer conn.Shutdown()
	ioctx := check.Got(conn.OpenIOContext(at.Pool))(t)
	defer ioctx.Destroy()
	ioctx.SetNamespace(at.Namespace)
	f(ioctx)
}

func write(t testing.TB, at ceph.Config, v *backend.Volume, content []byte) {
	t.Helper()
	hands(t, at, func(ioctx *rados.IOContext) {
		image := check.Got(rbd.OpenImage(ioctx, v.Access.RBD.Image, rbd.NoSnapshot))(t)
		defer image.Close()
		check.Got(image.WriteAt(content, 0))(t)
		check.OK(t, image.Flush())
	})
}

func read(t testing.TB, at ceph.Config, v *backend.Volume, length int) []byte {
	t.Helper()
	content := make([]byte, length)
	hands(t, at, func(ioctx *rados.IOContext) {
		image := check.Got(rbd.OpenImageReadOnly(ioctx, v.Access.RBD.Image, rbd.NoSnapshot))(t)
		defer image.Close()
		check.Got(image.ReadAt(content, 0))(t)
	})
	return content
}
