//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// volumes are what the node learns from its backend. It asks nothing else of it.
type volumes struct {
	backend.Backend
	mu   sync.Mutex
	all  map[backend.ID]*backend.Volume
	away bool
}

func (v *volumes) Get(_ context.Context, id backend.ID) (*backend.Volume, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch volume := v.all[id]; {
	case v.away:
		return nil, fmt.Errorf("%w: the backend is away", backend.ErrUnavailable)
	case volume != nil:
		found := *volume
		return &found, nil
	}
	return nil, fmt.Errorf("%w: volume %s", backend.ErrNotFound, id)
}

func (v *volumes) set(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// node is a driver as on a node, and its client.
type node struct {
	*testing.T
	csi.NodeClient
	ctx     context.Context
	volumes *volumes
	log     *bytes.Buffer
	clients map[backend.ID]nodeops.CephClient
	fenced  error // says so
	dir     string
}

func newNode(ctx context.Context, t *testing.T, w world) *node {
	t.Helper()
	n := &node{T: t, ctx: ctx, clients: map[backend.ID]nodeops.CephClient{}, dir: t.TempDir(), volumes: &volumes{all: map[backend.ID]*backend.Volume{}}}
	s := serve(ctx, t, w, driver.Config{
		Services: driver.NodeServices, Backend: n.volumes,
		CephShutOut: func(context.Context) (dead bool, err error) {
			err = n.isFenced()
			return err != nil, err
		},
		CephClient: func(_ context.Context, id backend.ID, c nodeops.CephClient) error {
			if err := n.isFenced(); err != nil {
				return err
			}
			m, err := nodeops.MountAt(n.staging(string(id)))
			n.volumes.set(func() {
				if _, again := n.clients[id]; m != nil && !again {
					t.Errorf("%s was mounted before its client was recorded", id)
				}
				n.clients[id] = c
			})
			return err
		},
	})
	n.NodeClient, n.log = s.NodeClient, s.log
	return n
}

func (n *node) isFenced() (err error) {
	n.volumes.set(func() { err = n.fenced })
	return err
}

// served is a driver that listens, and its clients.
type served struct {
	csi.ControllerClient
	csi.NodeClient
	conn   *grpc.ClientConn
	socket string
	log    *bytes.Buffer
}

func (s *served) use(conn *grpc.ClientConn) {
	s.conn, s.NodeClient, s.ControllerClient = conn, csi.NewNodeClient(conn), csi.NewControllerClient(conn)
}

// serve runs a driver until the test ends. No key may be in its log.
func serve(ctx context.Context, t *testing.T, w world, c driver.Config) *served {
	t.Helper()
	keys := t.TempDir()
	for user, key := range w.Keys {
		check.OK(t, os.WriteFile(filepath.Join(keys, w.FSID+"."+user), []byte(key), 0o400))
	}
	short, err := os.MkdirTemp("", "s") // a socket's name has little room
	check.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	s := &served{socket: filepath.Join(short, "s"), log: &bytes.Buffer{}}
	c.Endpoint, c.CephKeys = "unix://"+s.socket, driver.CephKeyFiles(keys)
	if c.Services != driver.ControllerServices {
		c.NodeID = "guest"
	}
	c.Log = slog.New(slog.NewTextHandler(io.MultiWriter(s.log, os.Stderr), &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := driver.New(c)
	check.OK(t, err)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	t.Cleanup(func() {
		stop()
		check.Report(t, <-done)
		for user, key := range w.Keys {
			if bytes.Contains(s.log.Bytes(), []byte(key)) {
				t.Errorf("the key of user %s is in the log", user)
			}
		}
	})
	s.use(dial(t, c.Endpoint))
	check.Got(csi.NewIdentityClient(s.conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)))(t)
	return s
}

func (w world) cluster(user string) backend.Ceph {
	return backend.Ceph{FSID: w.FSID, Monitors: []string{"v2:" + w.Monitor, "v1:" + w.MonitorV1}, User: user}
}

func (n *node) addImage(w world, id backend.ID, mode backend.Mode, fsType string) *backend.Volume {
	v := &backend.Volume{ID: id, Name: string(id), Size: gib, Mode: mode, FSType: fsType, Reach: backend.OneHost, Access: backend.Access{
		RBD: &backend.RBD{Cluster: w.cluster("node"), Pool: pool, Image: backend.RBDImage(id)},
	}}
	n.volumes.set(func() { n.volumes.all[id] = v })
	return v
}

func (n *node) addDirectory(w world, id backend.ID) {
	v := &backend.Volume{ID: id, Name: string(id), Size: 100 * mib, Mode: backend.Filesystem, Reach: backend.ManyHosts, Access: backend.Access{
		CephFS: &backend.CephFS{Cluster: w.cluster("files"), FileSystem: "files", Path: w.Paths[string(id)]},
	}}
	n.volumes.set(func() { n.volumes.all[id] = v })
}

func capability(mode backend.Mode, writer csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer}}
	if mode == backend.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return c
}

const (
	singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	manyWriters  = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

// staging is as the kubelet makes it.
func (n *node) staging(id string) string {
	return filepath.Join(n.dir, "plugins/kubernetes.io/csi", driver.DefaultName, id, "globalmount")
}
func (n *node) target(id string) string { return filepath.Join(n.dir, "target-"+id) }

func (n *node) stage(id string, c *csi.VolumeCapability) error {
	check.OK(n, os.MkdirAll(n.staging(id), 0o750))
	_, err := n.NodeStageVolume(n.ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id), VolumeCapability: c})
	return err
}

func (n *node) publish(id string, c *csi.VolumeCapability) error {
	return n.publishAt(n.target(id), id, c)
}

func (n *node) publishAt(target, id string, c *csi.VolumeCapability) error {
	_, err := n.NodePublishVolume(n.ctx, &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id), TargetPath: target, VolumeCapability: c})
	return err
}

func (n *node) unpublish(id string) error {
	_, err := n.NodeUnpublishVolume(n.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: n.target(id)})
	return err
}

func (n *node) unstage(id string) error {
	_, err := n.NodeUnstageVolume(n.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id)})
	return err
}

// twice does what must be repeatable.
func (n *node) twice(what string, f func() error) {
	n.Helper()
	for range 2 {
		if err := f(); err != nil {
			n.Fatalf("%s: %v", what, err)
		}
	}
}

func TestGuestDriver_FileSystemOnAnImageLivesThroughItsLife(t *testing.T) {
	for id, fsType := range map[string]string{"staged": "ext4", "other": "xfs", "left": "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			ctx, w := onGuest(t)
			n, c := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter)
			n.addImage(w, backend.ID(id), backend.Filesystem, fsType)
			n.twice("staging", func() error { return n.stage(id, c) })
			if client := n.clients[backend.ID(id)]; !strings.HasPrefix(client.Address, guestAddress+":") || client.ID == "" {
				t.Errorf("its client was reported as %+v", client)
			}
			n.twice("publishing", func() error { return n.publish(id, c) })
			file := filepath.Join(n.target(id), "file")
			check.OK(t, os.WriteFile(file, []byte("holdfast"), 0o600))
			stats, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: n.target(id)})
			if err != nil || stats.GetUsage()[0].GetTotal() < gib*8/10 || stats.GetUsage()[0].GetTotal() > gib {
				t.Errorf("its usage is %v, %v", stats, err)
			}
			health, err := n.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: id, StagingTargetPath: n.staging(id), VolumePublishPath: n.target(id)})
			if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) > 0 {
				t.Errorf("its health is %v, %v", health, err)
			}
			n.twice("unpublishing", func() error { return n.unpublish(id) })
			n.twice("unstaging", func() error { return n.unstage(id) })
			nothingMapped(t)
			n.twice("staging again", func() error { return n.stage(id, c) })
			if got, err := os.ReadFile(filepath.Join(n.staging(id), "file")); err != nil || string(got) != "holdfast" {
				t.Errorf("it reads %q, %v", got, err)
			}
			n.twice("unstaging again", func() error { return n.unstage(id) })
			nothingMapped(t)
		})
	}
}

func TestGuestDriver_BlockVolumeIsTheImage(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Block, singleWriter)
	n.addImage(w, "block", backend.Block, "")
	n.twice("staging", func() error { return n.stage("block", c) })
	n.twice("publishing", func() error { return n.publish("block", c) })
	put(t, n.target("block"), 0, []byte("holdfast"))
	if err := n.unstage("block"); err != nil {
		t.Fatalf("unstaging while it is published: %v", err)
	}
	if all, err := nodeops.RBDDevices(); err != nil || len(all) != 1 {
		t.Errorf("its device is gone while a pod has its node: %v, %v", all, err)
	}
	n.twice("unpublishing", func() error { return n.unpublish("block") })
	n.twice("unstaging", func() error { return n.unstage("block") })
	nothingMapped(t)
	d := mapped(ctx, t, w.image(t, "block"))
	if got := get(t, d.Path, 0, 8); string(got) != "holdfast" {
		t.Errorf("the image has %q", got)
	}
}

func TestGuestDriver_WhatIsMappedAlreadyIsUsed(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter)
	n.addImage(w, "dead", backend.Filesystem, "ext4")
	if _, err := nodeops.MapRBD(ctx, w.image(t, "dead")); err != nil { // a process before this one, which was killed
		t.Fatal(err)
	}
	n.twice("staging", func() error { return n.stage("dead", c) })
	if all, err := nodeops.RBDDevices(); err != nil || len(all) != 1 {
		t.Errorf("mapped are %v, %v", all, err)
	}
	n.twice("unstaging", func() error { return n.unstage("dead") })
	nothingMapped(t)
	check.Got(nodeops.MapRBD(ctx, w.image(t, "dead")))(t)
	n.twice("unstaging what was never mounted", func() error { return n.unstage("dead") })
	nothingMapped(t)
}

func TestGuestDriver_UnstagesWithoutItsBackend(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter)
	n.addImage(w, "dead", backend.Filesystem, "ext4")
	n.twice("staging", func() error { return n.stage("dead", c) })
	n.twice("publishing", func() error { return n.publish("dead", c) })
	n.volumes.set(func() { n.volumes.away = true })
	n.twice("unpublishing", func() error { return n.unpublish("dead") })
	n.twice("unstaging", func() error { return n.unstage("dead") })
	nothingMapped(t)
	d, err := nodeops.MapRBD(ctx, w.image(t, "dead")) // whose, is not known
	check.OK(t, err)
	if err := n.unstage("dead"); status.Code(err) != codes.Unavailable {
		t.Errorf("what may be a stranger's: %v", err)
	}
	n.volumes.set(func() { n.volumes.away, n.volumes.all = false, nil })
	if err := n.unstage("dead"); err != nil {
		t.Errorf("a stranger's, since the volume is gone: %v", err)
	}
	check.OK(t, nodeops.UnmapRBD(ctx, d))
}

func TestGuestDriver_NeverFormats(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter)
	n.addImage(w, "grown", backend.Filesystem, "ext4")
	if err := n.stage("grown", c); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no file system is on it") {
		t.Errorf("staging an empty image: %v", err)
	}
	nothingMapped(t)
	d := mapped(ctx, t, w.image(t, "grown"))
	if got := get(t, d.Path, 0, mib); !bytes.Equal(got, make([]byte, mib)) {
		t.Error("it is not empty any more")
	}
}

// A lost object reads as zeros.
func TestGuestDriver_FileSystemWhoseFirstObjectIsLostIsNotMadeAgain(t *testing.T) {
	const object = 4 * mib
	for fsType, repair := range map[string]string{"ext4": "e2fsck", "xfs": "xfs_repair", "btrfs": "btrfs rescue"} {
		t.Run(fsType, func(t *testing.T) {
			ctx, w := onGuest(t)
			n, c, id := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter), "lost-"+fsType
			n.addImage(w, backend.ID(id), backend.Filesystem, fsType)
			n.twice("staging", func() error { return n.stage(id, c) })
			n.twice("unstaging", func() error { return n.unstage(id) })
			d := check.Got(nodeops.MapRBD(ctx, w.image(t, backend.ID(id))))(t)
			put(t, d.Path, 0, make([]byte, object))
			check.OK(t, nodeops.UnmapRBD(ctx, d))
			for range 2 {
				if err := n.stage(id, c); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no file system is on it") || !strings.Contains(err.Error(), repair) {
					t.Errorf("staging: %v", err)
				}
				nothingMapped(t)
			}
			d = mapped(ctx, t, w.image(t, backend.ID(id)))
			if got := get(t, d.Path, 0, object); !bytes.Equal(got, make([]byte, object)) {
				t.Error("something was written there")
			}
		})
	}
}

func TestGuestDriver_ErrorsSayWhatHelps(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Filesystem, singleWriter)
	for name, test := range map[string]struct {
		change func(*backend.RBD)
		code   codes.Code
		want   string
	}{
		"no image":          {func(r *backend.RBD) { r.Pool = "nothing" }, codes.Unavailable, "no such image"},
		"another's image":   {func(r *backend.RBD) { r.Image = "other" }, codes.FailedPrecondition, "id of the volume"},
		"another image":     {func(r *backend.RBD) { r.ImageID = "1234" }, codes.Unavailable, "another image"},
		"no key":            {func(r *backend.RBD) { r.Cluster.User = "unknown" }, codes.FailedPrecondition, "key of user unknown"},
		"a path as a user":  {func(r *backend.RBD) { r.Cluster.User = "../x" }, codes.FailedPrecondition, "file name"},
		"no host there":     {func(r *backend.RBD) { r.Cluster.Monitors = []string{"v2:10.0.0.77:3300"} }, codes.Unavailable, "monitors answers"},
		"no monitor at all": {func(r *backend.RBD) { r.Cluster.Monitors = nil }, codes.Unavailable, "no monitor"},
	} {
		t.Run(name, func(t *testing.T) {
			v := n.addImage(w, "plain", backend.Filesystem, "ext4")
			test.change(v.Access.RBD)
			err := n.stage("plain", c)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s and %q", err, test.code, test.want)
			}
			nothingMapped(t)
		})
	}
}

func TestGuestDriver_DirectoryOfACephFSIsShared(t *testing.T) {
	ctx, w := onGuest(t)
	n, c := newNode(ctx, t, w), capability(backend.Filesystem, manyWriters)
	n.addDirectory(w, "shared")
	n.twice("staging", func() error { return n.stage("shared", c) })
	if client := n.clients["shared"]; !strings.HasPrefix(client.ID, "client.") {
		t.Errorf("its client was reported as %+v", client)
	}
	n.volumes.set(func() { n.clients["shared"] = nodeops.CephClient{} })
	n.twice("staging what a process mounted that was killed before it reported the client", func() error { return n.stage("shared", c) })
	if client := n.clients["shared"]; !strings.HasPrefix(client.ID, "client.") {
		t.Errorf("its client was not reported again: %+v", client)
	}
	found, clients, err := driver.CephVolumesInUse(ctx, driver.DefaultName, nil)
	if err != nil || !slices.Equal(found, []string{"shared"}) || len(clients) != 1 || clients[0] != n.clients["shared"] {
		t.Errorf("without a record, in use are %v of the clients %v, %v", found, clients, err)
	}
	n.twice("publishing", func() error { return n.publish("shared", c) })
	check.OK(t, os.WriteFile(filepath.Join(n.target("shared"), "by-a-pod"), []byte("x"), 0o600))
	stats, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "shared", VolumePath: n.target("shared")})
	if err != nil || stats.GetUsage()[0].GetTotal() != 100*mib {
		t.Errorf("its usage is %v, %v", stats, err)
	}
	health, err := n.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: "shared", StagingTargetPath: n.staging("shared")})
	if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) > 0 {
		t.Errorf("its health is %v, %v", health, err)
	}
	n.volumes.set(func() { n.volumes.away = true })
	n.twice("unpublishing", func() error { return n.unpublish("shared") })
	n.twice("unstaging", func() error { return n.unstage("shared") })
}

// TestGuestZZDriver is last: it leaves to the kernel what it still wants to write.
func TestGuestZZDriver_DeadClusterBlocksNoCall(t *testing.T) {
	ctx, w := onGuest(t)
	n := newNode(ctx, t, w)
	single, many := capability(backend.Filesystem, singleWriter), capability(backend.Filesystem, manyWriters)
	n.addImage(w, "dead", backend.Filesystem, "ext4")
	n.addDirectory(w, "deaddir")
	for id, c := range map[string]*csi.VolumeCapability{"dead": single, "deaddir": many} {
		n.twice("staging "+id, func() error { return n.stage(id, c) })
		n.twice("publishing "+id, func() error { return n.publish(id, c) })
		check.OK(t, os.WriteFile(filepath.Join(n.target(id), "unwritten"), make([]byte, mib), 0o600))
	}
	link(t, "down")
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	n.ctx = limited
	if _, err := n.NodeGetVolumeHealth(limited, &csi.NodeGetVolumeHealthRequest{VolumeId: "dead", StagingTargetPath: n.staging("dead")}); err != nil {
		t.Errorf("health: %v", err)
	}
	for _, id := range []string{"dead", "deaddir"} {
		if err := n.unpublish(id); err != nil {
			t.Errorf("unpublishing %s: %v", id, err)
		}
	}
	if err := n.unstage("deaddir"); err != nil {
		t.Errorf("unstaging the directory: %v", err)
	}
	if err := n.unstage("dead"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "being written") {
		t.Errorf("unstaging the image while it is not written: %v", err)
	}
	link(t, "up")
	n.ctx = ctx
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		err := n.unstage("dead")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	nothingMapped(t)
	n.twice("staging again", func() error { return n.stage("dead", single) })
	if info, err := os.Stat(filepath.Join(n.staging("dead"), "unwritten")); err != nil || info.Size() != mib {
		t.Errorf("what was to be written is %+v, %v", info, err)
	}
	n.twice("unstaging", func() error { return n.unstage("dead") })
}

// link takes the only connection away, or gives it back.
func link(t *testing.T, state string) {
	t.Helper()
	s := check.Got(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(s)
	nic := check.Got(unix.NewIfreq("vec0"))(t)
	nic.SetUint16(0)
	if state == "up" {
		nic.SetUint16(unix.IFF_UP)
	}
	check.OK(t, unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, nic))
}

func TestCutGuest_Writes(t *testing.T) {
	ctx, w := onGuest(t)
	n := newNode(ctx, t, w)
	n.addImage(w, "cut", backend.Block, "")
	n.addImage(w, "cutfs", backend.Filesystem, "ext4")
	n.addDirectory(w, "cutdir")
	block, file, many := capability(backend.Block, singleWriter), capability(backend.Filesystem, singleWriter), capability(backend.Filesystem, manyWriters)
	for id, c := range map[string]*csi.VolumeCapability{"cut": block, "cutfs": file, "cutdir": many} {
		check.OK(t, errors.Join(n.stage(id, c), n.publish(id, c)))
	}
	put(t, n.target("cut"), 77*mib, []byte("holdfast"))
	for _, id := range []string{"cutfs", "cutdir"} {
		path := filepath.Join(n.target(id), "file")
		check.OK(t, os.WriteFile(path, nil, 0o600))
		put(t, path, 0, []byte("holdfast"))
		dir, err := os.Open(n.target(id))
		if err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
		check.OK(t, err)
	}
	fmt.Println(written)
	<-ctx.Done()
}

// stageInTheEnd tries again as long as the cluster is not in reach, as the kubelet does.
func (n *node) stageInTheEnd(id string, c *csi.VolumeCapability) {
	n.Helper()
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		err := n.stage(id, c)
		if err == nil {
			return
		}
		if status.Code(err) != codes.Unavailable || n.ctx.Err() != nil {
			n.Fatal(err)
		}
	}
}

func TestCutGuest_FindsWhatWasWritten(t *testing.T) {
	ctx, w := onGuest(t)
	n := newNode(ctx, t, w)
	n.addImage(w, "cut", backend.Block, "")
	n.addImage(w, "cutfs", backend.Filesystem, "ext4")
	n.addDirectory(w, "cutdir")
	block, file, many := capability(backend.Block, singleWriter), capability(backend.Filesystem, singleWriter), capability(backend.Filesystem, manyWriters)
	for id, c := range map[string]*csi.VolumeCapability{"cut": block, "cutfs": file, "cutdir": many} {
		n.stageInTheEnd(id, c)
		check.OK(t, n.publish(id, c))
	}
	if got := get(t, n.target("cut"), 77*mib, 8); string(got) != "holdfast" {
		t.Errorf("the image reads %q", got)
	}
	for _, id := range []string{"cutfs", "cutdir"} {
		if got, err := os.ReadFile(filepath.Join(n.target(id), "file")); err != nil || string(got) != "holdfast" {
			t.Errorf("%s reads %q, %v", id, got, err)
		}
	}
	put(t, n.target("cut"), 0, []byte("again")) // which takes the lock of the image from a client that is dead
	for _, id := range []string{"cut", "cutfs", "cutdir"} {
		check.Report(t, errors.Join(n.unpublish(id), n.unstage(id)))
	}
	nothingMapped(t)
}
