//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

const (
	gib = 1 << 30
	mib = 1 << 20

	tap          = "node0"
	hostAddress  = "10.0.0.1"
	guestNetwork = "10.0.0.2/24"
	guestAddress = "10.0.0.2"
	limit        = 20 * time.Minute
	mostFaults   = 2
)

// world is what the second kernel knows of the cluster.
type world struct {
	FSID, Monitor, MonitorV1 string
	Keys                     map[string]string // by user
	Paths                    map[string]string // of directories of the file system, by volume
	Evicts                   string            // the address at which a client of the file system is shut out, before its number
}

const pool = "disks"

// images of volumes of 1 GiB, with their file systems; the same name stands for other content in a namespace.
var images = map[string]string{
	"plain": "", "grown": "", "cut": "", "block": "", "secret": "", "twice": "", "fenced": "",
	"killed-raw": "", "killed-ext4": "ext4",
	"staged": "ext4", "other": "xfs", "left": "btrfs", "dead": "ext4", "cutfs": "ext4", "lost-ext4": "ext4", "lost-xfs": "xfs", "lost-btrfs": "btrfs",
}

func TestNode(t *testing.T) {
	hostfs.RequireRoot(t)
	if testing.Short() {
		t.Skip("runs a Ceph cluster and a second kernel; run without -short")
	}
	if missing := uml.Missing(); missing != "" {
		hostfs.Skip(t, "uml", missing)
	}
	ceph.Require(t)
	for _, command := range []string{"link set lo up", "tuntap add " + tap + " mode tap", "addr add " + hostAddress + "/24 dev " + tap, "link set " + tap + " up"} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	c := ceph.Start(t, ceph.Options{Address: hostAddress, MDS: true})
	work := t.TempDir()
	prepare(t, c, work)
	binary := check.Got(os.Executable())(t)
	if out, err := exec.CommandContext(t.Context(), "cp", binary, filepath.Join(work, "tests")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("WithClients", func(t *testing.T) { inside(t, work, "^TestGuest") })
	t.Run("WithoutModules", func(t *testing.T) { inside(t, work, "^TestBareGuest") })
	t.Run("WithController", func(t *testing.T) {
		serveControllers(t, work)
		inside(t, work, "^TestNodeOfController_")
	})
	t.Run("PowerCut", func(t *testing.T) {
		cutAfterWriting(t, work)
		inside(t, work, "^TestCutGuest_Finds")
	})
}

// prepare fills the cluster.
func prepare(t *testing.T, c *ceph.Cluster, work string) {
	t.Helper()
	w := world{FSID: c.FSID, Monitor: c.Monitor, MonitorV1: c.MonitorV1, Keys: map[string]string{}, Paths: map[string]string{}, Evicts: evicting(t, c)}
	do := func(name string, args ...string) string {
		return check.Got(c.Command(t.Context(), name, args...))(t)
	}
	check.OK(t, c.CreateRBDPool(t.Context(), pool, 0))
	do("rbd", "namespace", "create", pool+"/tenant")
	for image, fsType := range images {
		file := filepath.Join(t.TempDir(), "image")
		check.OK(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, gib)))
		if fsType != "" {
			check.OK(t, nodeops.MakeFS(t.Context(), file, nodeops.MkfsSpec{FSType: fsType}))
		}
		do("rbd", "import", file, pool+"/"+backend.RBDImage(backend.ID(image)))
	}
	plain := backend.RBDImage("plain")
	do("rbd", "create", "--size", "1G", pool+"/tenant/"+plain)
	do("rbd", "snap", "create", pool+"/"+plain+"@empty")
	for _, volume := range []string{"shared", "cutdir", "deaddir"} {
		do("ceph", "fs", "subvolume", "create", ceph.FileSystem, volume, "--size", "104857600")
		w.Paths[volume] = do("ceph", "fs", "subvolume", "getpath", ceph.FileSystem, volume)
	}
	for user, caps := range map[string][]string{
		"node":     {"mon", "profile rbd", "osd", "profile rbd pool=" + pool},
		"files":    {"mon", "allow r", "mds", "allow rw path=/volumes", "osd", "allow rw tag cephfs data=" + ceph.FileSystem},
		"stranger": {"mon", "allow r"},
		"manager":  {"mon", "profile rbd", "osd", "profile rbd pool=" + pool},
		"holdfast": {"mon", "allow r", "mgr", "allow rw", "mds", "allow rwps fsname=" + ceph.FileSystem, "osd", "allow rw tag cephfs *=" + ceph.FileSystem},
		"pool":     {"mon", `profile rbd, allow command "osd blocklist"`, "osd", "profile rbd pool=" + pool},
	} {
		key := check.Got(c.CreateUser(t.Context(), user, caps...))(t)
		w.Keys[user] = key
	}
	b := check.Got(json.Marshal(w))(t)
	check.OK(t, os.WriteFile(filepath.Join(work, "world"), b, 0o600))
}

// evicting serves the eviction of clients of the file system, for which nodes have no rights.
func evicting(t *testing.T, c *ceph.Cluster) (url string) {
	t.Helper()
	socket := filepath.Join(c.Dir, string(ceph.MDS)+".asok")
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if out, err := c.Command(r.Context(), "ceph", "daemon", socket, "client", "evict", "id="+strings.TrimPrefix(r.URL.Path, "/")); err != nil {
			http.Error(w, out+err.Error(), http.StatusServiceUnavailable)
		}
	})}
	l := listen(t, "tcp", hostAddress+":0")
	accept(t, l, server.Serve, server.Close)
	return "http://" + l.Addr().String() + "/"
}

func machine(work string) uml.Machine {
	return uml.Machine{MemoryMiB: 768, DiskBytes: 4 * gib, Work: work, Network: &uml.Network{Tap: tap, Address: guestNetwork}}
}

func guest(pattern string) (argv, env []string) {
	return []string{"/run/work/tests", "-test.v", "-test.run", pattern, "-test.timeout=" + limit.String()}, []string{guestVariable + "=1"}
}

// inside runs tests on the second kernel and shows each as a test of its own here.
func inside(t *testing.T, work, pattern string) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	argv, env := guest(pattern)
	var out bytes.Buffer
	status, err := uml.Run(ctx, machine(work), argv, env, io.MultiWriter(&out, t.Output()))
	for i := 0; i < mostFaults && err == nil && status != 0 && uml.Broke(out.String()); i++ {
		t.Logf("status %d by a fault of the machine; another is booted", status)
		out.Reset()
		status, err = uml.Run(ctx, machine(work), argv, env, io.MultiWriter(&out, t.Output()))
	}
	check.OK(t, err)
	verdicts := uml.Verdicts(out.String())
	for _, v := range verdicts {
		t.Run(v.Test, func(t *testing.T) {
			if v.Result != "PASS" {
				t.Errorf("%s; the log is above", v.Result)
			}
		})
	}
	if status != 0 || len(verdicts) == 0 {
		t.Errorf("%d tests ran and ended with status %d", len(verdicts), status)
	}
}

const written = "ALL IS WRITTEN"

// cutAfterWriting switches the second kernel off as soon as it says that all is on disk.
func cutAfterWriting(t *testing.T, work string) {
	ctx, cut := context.WithTimeout(t.Context(), limit)
	defer cut()
	argv, env := guest("^TestCutGuest_Writes")
	said := &watched{word: written, then: cut}
	if _, err := uml.Run(ctx, machine(work), argv, env, io.MultiWriter(said, t.Output())); !said.heard {
		t.Fatalf("it did not write: %v", err)
	}
}

// watched calls then when the word was written to it.
type watched struct {
	b     bytes.Buffer
	word  string
	heard bool
	then  func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.b.Write(p)
	if !w.heard && strings.Contains(w.b.String(), w.word) {
		w.heard = true
		w.then()
	}
	return len(p), nil
}

// onGuest skips what only the second kernel can do, and reads what it is to know.
func onGuest(t *testing.T) (context.Context, world) {
	t.Helper()
	if os.Getenv(guestVariable) == "" {
		t.Skip("TestNode runs it on the second kernel")
	}
	const most = 5 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	return ctx, readWorld(t, "/run/work")
}

func readWorld(t *testing.T, work string) (w world) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(work, "world"))
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	check.OK(t, err)
	return w
}

// as is the cluster for a user.
func (w world) as(t *testing.T, user string) nodeops.Ceph {
	t.Helper()
	key := check.Got(nodeops.ParseCephKey(w.Keys[user]))(t)
	return nodeops.Ceph{FSID: w.FSID, Monitors: []string{"v2:" + w.Monitor, "v1:" + w.MonitorV1}, User: user, Key: key}
}

func (w world) image(t *testing.T, id backend.ID) nodeops.RBD {
	t.Helper()
	return nodeops.RBD{Cluster: w.as(t, "node"), Pool: pool, Image: backend.RBDImage(id)}
}

func (w world) directory(t *testing.T, volume string) nodeops.CephFS {
	t.Helper()
	return nodeops.CephFS{Cluster: w.as(t, "files"), FileSystem: ceph.FileSystem, Path: w.Paths[volume]}
}

func isLack(err error, module string) bool {
	lack, is := errors.AsType[*nodeops.CephClientError](err)
	return is && lack.Module == module
}
