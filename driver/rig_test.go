package driver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const gib = 1 << 30

// rig is a driver that serves a backend, and a client that speaks to it through its socket.
type rig struct {
	*testing.T
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient

	driver   *Driver
	conn     *grpc.ClientConn
	log      *buffer
	metrics  *prometheus.Registry
	shutdown context.CancelFunc
	done     chan struct{} // closed when Run has returned
	err      error         // what it returned
	waited   bool
}

// impatient tries again at once: the socket may not be there yet.
var impatient = grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute}

func newRig(t *testing.T, b backend.Backend, adjust ...func(*Config)) *rig {
	t.Helper()
	r := rigWithoutProbe(t, b, adjust...)
	check.Got(r.Probe(r.ctx(), &csi.ProbeRequest{}, grpc.WaitForReady(true)))(t)
	return r
}

// rigWithoutProbe is a rig whose socket may not be there yet.
func rigWithoutProbe(t *testing.T, b backend.Backend, adjust ...func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, log: &buffer{}, metrics: prometheus.NewRegistry(), done: make(chan struct{})}
	config := Config{
		Version: "1.2.3", NodeID: "node-a", Endpoint: "unix://" + filepath.Join(shortDir(t), "csi.sock"), Backend: b,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: r.metrics,
	}
	for _, f := range adjust {
		f(&config)
	}
	d := check.Got(New(config))(t)
	d.mounts = func() ([]nodeops.Mount, error) { return nil, nil } // what others have staged on this machine is not the test's
	ctx, cancel := context.WithCancel(context.Background())
	r.driver, r.shutdown = d, cancel
	go func() {
		r.err = d.Run(ctx)
		close(r.done)
	}()
	conn := check.Got(grpc.NewClient(config.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(impatient)))(t)
	r.conn = conn
	r.IdentityClient, r.ControllerClient = csi.NewIdentityClient(conn), csi.NewControllerClient(conn)
	r.GroupControllerClient, r.NodeClient = csi.NewGroupControllerClient(conn), csi.NewNodeClient(conn)
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if expected := r.waited; r.wait() != nil && !expected {
			t.Errorf("Run: %v", r.err)
		}
	})
	return r
}

// wait returns what Run returned.
func (r *rig) wait() error {
	<-r.done
	r.waited = true
	return r.err
}

func newMemoryRig(t *testing.T, adjust ...func(*Config)) (*rig, *backendtest.Memory) {
	memory := backendtest.NewMemory()
	return newRig(t, memory, adjust...), memory
}

// ctx is bounded, so that a test that hangs fails.
func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	dir := check.Got(os.MkdirTemp("", "hf"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func mountCapability(fsType string, flags ...string) *csi.VolumeCapability {
	return withMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	})
}

func blockCapability() *csi.VolumeCapability {
	return withMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	})
}

func withMode(mode csi.VolumeCapability_AccessMode_Mode, c *csi.VolumeCapability) *csi.VolumeCapability {
	c.AccessMode = &csi.VolumeCapability_AccessMode{Mode: mode}
	return c
}

func createRequest(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
	}
}

// create makes a volume of 1 GiB.
func (r *rig) create(name string) *csi.Volume {
	r.Helper()
	resp := check.Got(r.CreateVolume(r.ctx(), createRequest(name)))(r)
	return resp.GetVolume()
}

func (r *rig) snapshot(name, source string) *csi.Snapshot {
	r.Helper()
	resp := check.Got(r.CreateSnapshot(r.ctx(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source}))(r)
	return resp.GetSnapshot()
}

// attach attaches a volume to a node.
func (r *rig) attach(volume, node string, capability *csi.VolumeCapability) error {
	_, err := r.ControllerPublishVolume(r.ctx(), &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: capability})
	return err
}

// takes makes a volume, and has its capabilities confirmed.
func (r *rig) takes(req *csi.CreateVolumeRequest) error {
	made, err := r.CreateVolume(r.ctx(), req)
	if err != nil {
		return err
	}
	resp, err := r.ValidateVolumeCapabilities(r.ctx(), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: made.GetVolume().GetVolumeId(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	})
	if err == nil && resp.GetConfirmed() == nil {
		err = fmt.Errorf("not confirmed: %s", resp.GetMessage())
	}
	return err
}

// expectError fails unless err has the code and its message names each of the words.
func expectError(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got code %s (%v), want %s", status.Code(err), err, code)
	}
	for _, word := range words {
		if message := status.Convert(err).Message(); !strings.Contains(message, word) {
			t.Errorf("message %q does not name %q", message, word)
		}
	}
}

// buffer is a log that several goroutines write and read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// lines returns the log lines that contain all words.
func (b *buffer) lines(words ...string) (found []string) {
	for line := range strings.Lines(b.String()) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// scripted is a backend whose answers a test gives; what it does not give is the memory backend's.
type scripted struct {
	*backendtest.Memory
	create   func(context.Context) error
	get      func(backend.ID) (*backend.Volume, error)
	delete   func(backend.ID) error
	list     func() ([]*backend.Volume, error)
	capacity func() (backend.Capacity, error)
	shows    func(*backend.Volume) // changes what is created, got or grown
}

func newScripted() *scripted { return &scripted{Memory: backendtest.NewMemory()} }

func (s *scripted) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	if s.create != nil {
		if err := s.create(ctx); err != nil {
			return nil, err
		}
	}
	return s.shown(s.Memory.Create(ctx, spec))
}

func (s *scripted) shown(v *backend.Volume, err error) (*backend.Volume, error) {
	if v != nil && s.shows != nil {
		s.shows(v)
	}
	return v, err
}

func (s *scripted) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return s.shown(s.Memory.Expand(ctx, id, size))
}

func (s *scripted) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if s.get != nil {
		return s.get(id)
	}
	return s.shown(s.Memory.Get(ctx, id))
}

func (s *scripted) Delete(ctx context.Context, id backend.ID) error {
	if s.delete != nil {
		if err := s.delete(id); err != nil {
			return err
		}
	}
	return s.Memory.Delete(ctx, id)
}

func (s *scripted) List(ctx context.Context) ([]*backend.Volume, error) {
	if s.list != nil {
		return s.list()
	}
	return s.Memory.List(ctx)
}

func (s *scripted) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	if s.capacity != nil {
		return s.capacity()
	}
	return s.Memory.Capacity(ctx, pool)
}

// plain hides everything optional of a backend.
type plain struct{ backend.Storage }

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return all
}
