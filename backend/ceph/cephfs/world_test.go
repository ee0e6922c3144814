//go:build ceph

package cephfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// shared is the cluster of all tests of this run; a test that kills daemons has one of its own.
var shared = sync.OnceValues(func() (*rig.Cluster, error) {
	return rig.Run(context.Background(), rig.Options{MDS: true})
})

func TestMain(m *testing.M) {
	if os.Getenv(killedOperation) != "" {
		os.Exit(m.Run()) // it uses its parent's cluster
	}
	code := m.Run()
	if started.Load() {
		c, err := shared()
		if err == nil {
			err = c.Stop()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var started atomic.Bool

func cluster(t testing.TB) *rig.Cluster {
	t.Helper()
	rig.Require(t)
	started.Store(true)
	return check.Got(shared())(t)
}

// world is a pool in a group of its own, and a client that uses its volumes as a node does.
type world struct {
	testing.TB
	cluster *rig.Cluster
	in      ceph.Config
	config  Config
	backend *Backend
	log     *lines
	fs      func() *cephfs.MountInfo

	connections []*ceph.Cluster
}

var groups atomic.Int32

// caps are what the user of a pool needs, and no more.
func caps() []string {
	return []string{
		"mon", `allow r, allow command "osd blocklist"`, "mgr", "allow rw", "mds", "allow rwp fsname=" + rig.FileSystem,
	}
}

func newWorld(t testing.TB, size int64) *world {
	t.Helper()
	return newWorldIn(t, cluster(t), size)
}

func newWorldIn(t testing.TB, c *rig.Cluster, size int64) *world {
	t.Helper()
	key := check.Got(c.CreateUser(t.Context(), "holdfast", caps()...))(t)
	w := &world{TB: t, cluster: c, log: &lines{}, config: Config{
		Name: "pool", Group: fmt.Sprintf("group%d", groups.Add(1)),
	}, in: ceph.Config{FSID: c.FSID, Monitors: []string{"v2:" + c.Monitor}, User: "holdfast", Key: ceph.Key(key), FileSystem: rig.FileSystem, Patience: time.Minute}}
	w.fs = sync.OnceValue(w.client)
	w.ceph("fs", "subvolumegroup", "create", rig.FileSystem, w.config.Group)
	if size > 0 {
		w.ceph("fs", "subvolumegroup", "resize", rig.FileSystem, w.config.Group, fmt.Sprint(size))
	}
	w.open()
	t.Cleanup(func() {
		check.Report(t, w.backend.Close(context.Background()))
		for _, c := range w.connections {
			check.Report(t, c.Close(context.Background()))
		}
		if t.Failed() {
			t.Logf("the log of the backend:\n%s", w.log)
		}
	})
	return w
}

// open serves the pool with a connection of its own, as another process would.
func (w *world) open() {
	w.Helper()
	log := slog.New(slog.NewTextHandler(w.log, nil))
	cluster, err := ceph.New(w.in, log)
	check.OK(w, err)
	w.connections = append(w.connections, cluster)
	if w.backend, err = Open(context.Background(), cluster, w.config, log); err != nil {
		w.Fatal(err)
	}
}

// reopen closes the pool and opens it as another process would.
func (w *world) reopen() {
	w.Helper()
	check.OK(w, w.backend.Close(context.Background()))
	w.open()
}

// ceph runs a command of an administrator.
func (w *world) ceph(args ...string) string {
	w.Helper()
	return check.Got(w.cluster.Ceph(context.Background(), args...))(w)
}

// client mounts the file system as an administrator's program would.
func (w *world) client() *cephfs.MountInfo {
	w.Helper()
	key := check.Got(w.cluster.Key(w.Context(), "admin"))(w)
	conn := check.Got(rados.NewConnWithUser("admin"))(w)
	for _, o := range [][2]string{{"mon_host", "v2:" + w.cluster.Monitor}, {"key", key}, {"keyring", "/dev/null"}} {
		check.OK(w, conn.SetConfigOption(o[0], o[1]))
	}
	check.OK(w, conn.Connect())
	w.Cleanup(conn.Shutdown)
	m := check.Got(mount(conn, rig.FileSystem, ""))(w)
	w.Cleanup(func() {
		check.Report(w, unmount(m))
	})
	return m
}

func (w *world) write(v *backend.Volume, name string, content []byte) {
	w.Helper()
	check.OK(w, w.tryWrite(v, name, content))
}

func (w *world) tryWrite(v *backend.Volume, name string, content []byte) (err error) {
	f, err := w.fs().Open(v.Access.CephFS.Path+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for at := 0; at < len(content); {
		n, err := f.WriteAt(content[at:min(len(content), at+mib)], int64(at))
		if err != nil {
			return err
		}
		at += n
	}
	return f.Sync()
}

func (w *world) read(v *backend.Volume, name string) []byte {
	w.Helper()
	f := check.Got(w.fs().Open(v.Access.CephFS.Path+"/"+name, os.O_RDONLY, 0))(w)
	defer f.Close()
	return check.Got(io.ReadAll(f))(w)
}

func (w *world) create(name string, size int64) *backend.Volume {
	w.Helper()
	return check.Got(w.backend.Create(context.Background(), backend.VolumeSpec{Name: name, Size: backend.Size{Required: size}}))(w)
}

// want fails unless an error is of a kind and names what it should.
func (w *world) want(err, kind error, names ...string) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Fatalf("got %v, want one that is %q", err, kind)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			w.Errorf("%q does not say %q", err, name)
		}
	}
}

// lines keeps a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const killedOperation = "HOLDFAST_TEST_CEPHFS_OPERATION"

func (w *world) close() {
	w.Helper()
	check.OK(w, w.backend.Close(context.Background()))
}

// empty fails unless nothing is left in the group, nor is recorded as begun.
func (w *world) empty() {
	w.Helper()
	if _, err := w.backend.List(w.Context()); err != nil { // opens the pool
		w.Fatal(err)
	}
	wait.For(w, "an empty group", func() error {
		g := &group{fs: w.fs(), dir: "/volumes/" + w.config.Group}
		names, err := g.names()
		if err != nil {
			return err
		}
		begun, err := g.begun()
		if err != nil {
			return err
		}
		if len(names) > 0 || len(begun) > 0 {
			return fmt.Errorf("left are %v, begun are %v", names, begun)
		}
		return nil
	})
	if c, err := w.backend.Capacity(w.Context(), ""); err != nil || c.Promised != 0 {
		w.Errorf("%d bytes are promised, %v", c.Promised, err)
	}
}
