package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// spread is a memory backend whose volumes are on the first node that may have them.
type spread struct {
	*backendtest.Memory
	nodes []string
	reach backend.Reach     // of volumes of the pool; those of others are on their hosts
	lacks map[string]string // by node, the label of what it cannot use

	mu       sync.Mutex
	asked    []string
	yields   bool // to the node of the source
	attached map[backend.ID]string
}

// placed puts a volume on the first node.
func (s *spread) placed(v *backend.Volume, err error) (*backend.Volume, error) {
	if err == nil {
		v.Node, v.Reach = s.nodes[0], s.reach
	}
	return v, err
}

func (s *spread) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	s.mu.Lock()
	s.asked = spec.Nodes
	s.mu.Unlock()
	v, err := s.placed(s.Memory.Create(ctx, spec))
	if err == nil && len(spec.Nodes) > 0 {
		v.Node = spec.Nodes[0]
	}
	return v, err
}

func (s *spread) List(ctx context.Context) ([]*backend.Volume, error) {
	all, err := s.Memory.List(ctx)
	for _, v := range all {
		_, _ = s.placed(v, nil)
	}
	return all, err
}

func (s *spread) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return s.placed(s.Memory.Expand(ctx, id, size))
}

func (s *spread) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	s.mu.Lock()
	s.asked, s.yields = spec.Nodes, spec.NodesYield
	s.mu.Unlock()
	return s.placed(s.Memory.Clone(ctx, source, spec))
}

func (s *spread) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return s.placed(s.Memory.Get(ctx, id))
}

func (s *spread) Reach(pool string) backend.Reach {
	if pool == "memory" {
		return s.reach
	}
	return backend.ItsHost
}

func (s *spread) Attach(_ context.Context, id backend.ID, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.attached[id]; at != "" && at != node {
		return fmt.Errorf("%w: volume %s is attached to %s", backend.ErrPrecondition, id, at)
	}
	if s.attached == nil {
		s.attached = map[backend.ID]string{}
	}
	s.attached[id] = node
	return nil
}

func (s *spread) Detach(_ context.Context, id backend.ID, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node == "" || s.attached[id] == node {
		delete(s.attached, id)
	}
	return nil
}

func (s *spread) FindHost(node string) error {
	if !slices.Contains(s.nodes, node) {
		return fmt.Errorf("%w: node %s", backend.ErrNotFound, node)
	}
	return nil
}

func (s *spread) CanUse(node, key string) error {
	if s.lacks[node] == key {
		return fmt.Errorf("%w: the kernel has no module", backend.ErrPrecondition)
	}
	return nil
}

func (s *spread) CapacityAt(_ context.Context, node, pool string) (backend.Capacity, error) {
	switch i := slices.Index(s.nodes, node); {
	case i < 0 || pool != "" && pool != "memory":
		return backend.Capacity{}, fmt.Errorf("%w: node %s, pool %s", backend.ErrNotFound, node, pool)
	case node == "node-down":
		return backend.Capacity{}, fmt.Errorf("%w: node %s", backend.ErrUnavailable, node)
	default:
		return backend.Capacity{Available: int64(i+1) * gib, Largest: int64(i+1) * gib}, nil
	}
}

func newClusterRig(t *testing.T, adjust ...func(*Config)) (*rig, *spread) {
	s := &spread{Memory: backendtest.NewMemory(), nodes: []string{"node-x", "node-y", "node-down"}}
	return newRig(t, s, append([]func(*Config){func(c *Config) { c.Services, c.NodeID = ControllerServices, "" }}, adjust...)...), s
}

func on(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: node}}
}

func TestCluster_VolumeIsWhereItsBackendPutIt(t *testing.T) {
	r, s := newClusterRig(t)
	req := createRequest("v")
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{on("node-y"), on("node-x"), {Segments: map[string]string{"zone": "1"}}}}
	resp, err := r.CreateVolume(r.ctx(), req)
	check.OK(t, err)
	if !slices.Equal(s.asked, []string{"node-y", "node-x"}) {
		t.Errorf("the backend could choose among %v", s.asked)
	}
	if topology := resp.GetVolume().GetAccessibleTopology(); len(topology) != 1 || nodeOf(topology[0]) != "node-y" {
		t.Errorf("the volume says it is at %v", topology)
	}
	resp, err = r.CreateVolume(r.ctx(), createRequest("w"))
	if err != nil || s.asked != nil || nodeOf(resp.GetVolume().GetAccessibleTopology()[0]) != "node-x" {
		t.Errorf("without requirements: %v, %v, among %v", resp, err, s.asked)
	}
}

func TestCluster_UnknownTopologyLetsTheSchedulerChooseAgainAndAMissingSourceIsNotFound(t *testing.T) {
	r, _ := newClusterRig(t)
	req := createRequest("v")
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "1"}}}}
	_, err := r.CreateVolume(r.ctx(), req)
	expectError(t, err, codes.ResourceExhausted, TopologyKey)
	req.AccessibilityRequirements.Requisite = []*csi.Topology{on("node-x")}
	req.VolumeContentSource = contentSource(&backend.Source{Kind: backend.SourceSnapshot, ID: "gone"})
	_, err = r.CreateVolume(r.ctx(), req)
	expectError(t, err, codes.NotFound, "gone")
}

func TestCluster_CloneIsCreatedOnTheNodeOfItsSource(t *testing.T) {
	r, s := newClusterRig(t)
	r.create("source")
	clone := func(name string, requisite ...*csi.Topology) *csi.Volume {
		req := createRequest(name)
		req.VolumeContentSource = contentSource(&backend.Source{Kind: backend.SourceVolume, ID: "source"})
		req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: requisite}
		resp := check.Got(r.CreateVolume(r.ctx(), req))(t)
		return resp.GetVolume()
	}
	if v := clone("a", on("node-y")); !s.yields || nodeOf(v.GetAccessibleTopology()[0]) != "node-x" {
		t.Errorf("chosen by the scheduler: among %v, at %v", s.asked, v.GetAccessibleTopology())
	}
	if clone("b", on("node-y"), on("node-x")); s.yields || !slices.Equal(s.asked, []string{"node-y", "node-x"}) {
		t.Errorf("allowed by the class: among %v", s.asked)
	}
}

func TestCluster_CapacityIsReportedPerNode(t *testing.T) {
	r, _ := newClusterRig(t)
	for name, test := range map[string]struct {
		req  *csi.GetCapacityRequest
		want int64
	}{
		"one node":      {&csi.GetCapacityRequest{AccessibleTopology: on("node-x")}, gib},
		"another":       {&csi.GetCapacityRequest{AccessibleTopology: on("node-y")}, 2 * gib},
		"one of no one": {&csi.GetCapacityRequest{AccessibleTopology: on("node-z")}, 0},
		"one down":      {&csi.GetCapacityRequest{AccessibleTopology: on("node-down")}, 0},
		"no such pool":  {&csi.GetCapacityRequest{AccessibleTopology: on("node-x"), Parameters: map[string]string{"pool": "fast"}}, 0},
		"all":           {&csi.GetCapacityRequest{}, 1 << 40},
	} {
		if resp, err := r.GetCapacity(r.ctx(), test.req); err != nil || resp.GetAvailableCapacity() != test.want {
			t.Errorf("%s: %v, %v, want %d", name, resp, err, test.want)
		}
	}
}

func TestServices_AreServedSeparatelyInACluster(t *testing.T) {
	r, _ := newClusterRig(t)
	_, err := r.NodeGetInfo(r.ctx(), &csi.NodeGetInfoRequest{})
	expectError(t, err, codes.Unimplemented, "Node")
	if got := r.advertised(); !slices.Contains(got, "CONTROLLER_SERVICE") {
		t.Errorf("the controller advertises %v", got)
	}

	n := newRig(t, backendtest.NewMemory(), func(c *Config) { c.Services = NodeServices })
	_, err = n.CreateVolume(n.ctx(), createRequest("v"))
	expectError(t, err, codes.Unimplemented, "Controller")
	plugin := check.Got(n.GetPluginCapabilities(n.ctx(), &csi.GetPluginCapabilitiesRequest{}))(t)
	for _, c := range plugin.GetCapabilities() {
		if s := c.GetService().GetType(); s != csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS && c.GetVolumeExpansion() == nil {
			t.Errorf("the node service advertises %v", s)
		}
	}
}

func TestCluster_VolumeIsAttachedToItsNodeOnly(t *testing.T) {
	r, _ := newClusterRig(t, func(c *Config) { c.Attach = true })
	if !slices.Contains(r.advertised(), "controller PUBLISH_UNPUBLISH_VOLUME") {
		t.Errorf("advertised: %v", r.advertised())
	}
	r.create("v")
	for range 2 {
		check.Report(t, r.attach("v", "node-x", mountCapability("")))
	}
	expectError(t, r.attach("v", "node-y", mountCapability("")), codes.FailedPrecondition, "node-x", "node-y")
	expectError(t, r.attach("v", "node-z", mountCapability("")), codes.NotFound, "node-z")
	expectError(t, r.attach("w", "node-x", mountCapability("")), codes.NotFound, "w")
	expectError(t, r.attach("v", "", mountCapability("")), codes.InvalidArgument, "node_id")
	expectError(t, r.attach("v", "node-x", nil), codes.InvalidArgument, "volume_capability")
	expectError(t, r.attach("v", "node-x", blockCapability()), codes.InvalidArgument, "Block")
	for _, volume := range []string{"v", "v", "gone"} {
		check.Got(r.ControllerUnpublishVolume(r.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: "node-x"}))(t)
	}
}

// heldMemory has volumes that a lost node may still write to.
type heldMemory struct{ *backendtest.Memory }

func (heldMemory) CheckDetached(_ context.Context, id backend.ID, node string) error {
	if node == "lost" {
		return fmt.Errorf("%w: volume %s is not detached from node %s", backend.ErrUnavailable, id, node)
	}
	return nil
}

func TestCluster_VolumeStaysAttachedToANodeThatMayStillWrite(t *testing.T) {
	r := rigWithoutProbe(t, heldMemory{backendtest.NewMemory()}, func(c *Config) { c.Services, c.NodeID, c.Attach = ControllerServices, "", true })
	unpublish := func(node string) error {
		_, err := r.ControllerUnpublishVolume(r.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}, grpc.WaitForReady(true))
		return err
	}
	expectError(t, unpublish("lost"), codes.Unavailable, "volume v", "node lost")
	check.Report(t, unpublish("a"))
}

func TestCluster_WithoutAttachPublishIsUnimplemented(t *testing.T) {
	r, _ := newClusterRig(t)
	expectError(t, r.attach("v", "node-x", nil), codes.Unimplemented)
	_, err := r.ControllerUnpublishVolume(r.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"})
	expectError(t, err, codes.Unimplemented)
}

func TestReplica_ThatDoesNotLeadCreatesNothingUntilItDoes(t *testing.T) {
	hostfs.NotInGate(t, "has a deadline of seconds")
	leading := make(chan struct{})
	memory := backendtest.NewMemory()
	r := rigWithoutProbe(t, memory, func(c *Config) { c.Services, c.NodeID, c.Leading = ControllerServices, "", leading })
	check.Got(r.GetPluginInfo(r.ctx(), &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true)))(t)
	_, err := r.CreateVolume(r.ctx(), createRequest("v"))
	expectError(t, err, codes.Unavailable, "another replica leads")
	_, err = r.DeleteVolumeGroupSnapshot(r.ctx(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g"})
	expectError(t, err, codes.Unavailable, "another replica leads")
	soon, cancel := context.WithTimeout(r.ctx(), 4*time.Second) // it answers a second before
	defer cancel()
	if resp, err := r.Probe(soon, &csi.ProbeRequest{}); err != nil || resp.GetReady().GetValue() {
		t.Errorf("Probe: %v, %v", resp, err)
	}
	answer := make(chan bool)
	go func() {
		resp, err := r.Probe(r.ctx(), &csi.ProbeRequest{})
		answer <- err == nil && resp.GetReady().GetValue()
	}()
	close(leading)
	if !<-answer {
		t.Error("it leads and is not ready")
	}
	r.create("v")
}

func TestReplica_ThatWaitsStopsAtOnce(t *testing.T) {
	r := rigWithoutProbe(t, backendtest.NewMemory(), func(c *Config) {
		c.Services, c.NodeID, c.Leading, c.StopTimeout = ControllerServices, "", make(chan struct{}), time.Hour
	})
	check.Got(r.GetPluginInfo(r.ctx(), &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true)))(t)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, _ = r.Probe(r.ctx(), &csi.ProbeRequest{}) // however it ends
	}()
	<-begun
	r.shutdown()
	check.Report(t, r.wait())
}

func TestCluster_ReleasedVolumeIsReportedAndNeedNotBeThere(t *testing.T) {
	released := make(chan backend.ID, 2)
	r := newRig(t, backendtest.NewMemory(), func(c *Config) { c.Released = func(id backend.ID) { released <- id } })
	dir := t.TempDir()
	for range 2 {
		check.Got(r.NodeUnpublishVolume(r.ctx(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: dir + "/target"}))(t)
		check.Got(r.NodeUnstageVolume(r.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: dir}))(t)
		if id := <-released; id != "v" {
			t.Errorf("a release of %s was reported", id)
		}
	}
}
