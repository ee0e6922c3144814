package driver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// newSiteRig has one pool, memory, that all nodes reach.
func newSiteRig(t *testing.T, reach backend.Reach, adjust ...func(*Config)) (*rig, *spread) {
	r, s := newClusterRig(t, adjust...)
	s.reach = reach
	return r, s
}

func inPool(name string, mode csi.VolumeCapability_AccessMode_Mode) *csi.CreateVolumeRequest {
	req := createRequest(name)
	req.Parameters = map[string]string{"pool": "memory"}
	req.VolumeCapabilities = []*csi.VolumeCapability{withMode(mode, mountCapability(""))}
	return req
}

// clientKeys are the labels of the nodes that can use volumes.
var clientKeys = map[backend.Reach]string{backend.OneHost: "topology.holdfast.dev/rbd", backend.ManyHosts: "topology.holdfast.dev/cephfs"}

func TestSite_VolumesAreUsedWhereTheKernelHasTheClient(t *testing.T) {
	for reach, key := range clientKeys {
		everywhere := func(v *csi.Volume) bool {
			all := v.GetAccessibleTopology()
			return len(all) == 1 && maps.Equal(all[0].GetSegments(), map[string]string{key: "true"})
		}
		r, s := newSiteRig(t, reach)
		for _, place := range []*csi.TopologyRequirement{
			nil,
			{Requisite: []*csi.Topology{on("node-y")}, Preferred: []*csi.Topology{on("node-y")}},
			{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "north"}}}},
		} {
			req := inPool("v", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
			req.AccessibilityRequirements = place
			resp, err := r.CreateVolume(r.ctx(), req)
			if err != nil || !everywhere(resp.GetVolume()) || len(resp.GetVolume().GetVolumeContext()) > 0 || s.asked != nil {
				t.Errorf("requested at %v: %v, %v, among %v", place, resp, err, s.asked)
			}
		}
		list, err := r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{})
		if err != nil || len(list.GetEntries()) != 1 || !everywhere(list.GetEntries()[0].GetVolume()) {
			t.Errorf("listed %v, %v", list, err)
		}
		grown, err := r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
		if err != nil || grown.GetNodeExpansionRequired() != (reach == backend.OneHost) {
			t.Errorf("grown: %v, %v", grown, err)
		}
	}
}

func TestSite_AnotherPoolIsStillOnANode(t *testing.T) {
	r, s := newSiteRig(t, backend.ManyHosts)
	req := createRequest("v")
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{on("node-y")}}
	if _, err := r.CreateVolume(r.ctx(), req); err != nil || !slices.Equal(s.asked, []string{"node-y"}) {
		t.Errorf("requested at %v, %v", s.asked, err)
	}
}

func TestSite_CapacityIsThatOfThePoolAtEveryNodeThatCanUseIt(t *testing.T) {
	for reach, key := range clientKeys {
		r, s := newSiteRig(t, reach)
		s.lacks = map[string]string{"node-x": "topology.holdfast.dev/another", "node-y": key}
		for _, where := range []*csi.Topology{nil, on("node-x"), on("node-new"), {Segments: map[string]string{"zone": "north"}}} {
			got, err := r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{AccessibleTopology: where, Parameters: map[string]string{"pool": "memory"}})
			if err != nil || got.GetAvailableCapacity() < gib {
				t.Errorf("at %v: %v, %v", where, got, err)
			}
		}
		got, err := r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{AccessibleTopology: on("node-y"), Parameters: map[string]string{"pool": "memory"}})
		if err != nil || got.GetAvailableCapacity() != 0 {
			t.Errorf("where the kernel lacks the client: %v, %v", got, err)
		}
	}
}

func TestSite_AccessModesAreThoseOfTheEngine(t *testing.T) {
	for _, test := range []struct {
		reach backend.Reach
		block bool
		modes []csi.VolumeCapability_AccessMode_Mode
		wrong string // what the refusal says; empty: none
	}{
		{backend.ManyHosts, false, slices.Concat(singleNode, multiNode), ""},
		{backend.ManyHosts, true, singleNode, "engine CephFS"},
		{backend.OneHost, false, singleNode, ""},
		{backend.OneHost, true, singleNode, ""},
		{backend.OneHost, false, multiNode, "engine CephFS"},
		{backend.OneHost, true, multiNode, "raw block device"},
	} {
		r, _ := newSiteRig(t, test.reach)
		for _, mode := range test.modes {
			req := inPool(strings.ToLower(strings.ReplaceAll(mode.String(), "_", "-")), mode)
			if test.block {
				req.VolumeCapabilities = []*csi.VolumeCapability{withMode(mode, blockCapability())}
			}
			if err := r.takes(req); test.wrong != "" {
				expectError(t, err, codes.InvalidArgument, test.wrong)
			} else if err != nil {
				t.Errorf("%d, %s: %v", test.reach, mode, err)
			}
		}
	}
	// One of several modes is enough.
	r, _ := newSiteRig(t, backend.OneHost)
	req := inPool("v", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	req.VolumeCapabilities = append(req.VolumeCapabilities, withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability("")))
	expectError(t, r.takes(req), codes.InvalidArgument, "MULTI_NODE_MULTI_WRITER", "one node at a time")
}

func TestSite_VolumeIsAttachedToAnyNodeThatThereIsUnlessItsKernelLacksTheClient(t *testing.T) {
	for reach, key := range clientKeys {
		r, s := newSiteRig(t, reach, func(c *Config) { c.Attach = true })
		s.lacks = map[string]string{"node-x": "topology.holdfast.dev/another", "node-y": key}
		for node, code := range map[string]codes.Code{
			"node-x": codes.OK, "node-y": codes.FailedPrecondition, "node-down": codes.OK, "node-new": codes.NotFound,
		} {
			req := inPool("on-"+node, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
			check.Got(r.CreateVolume(r.ctx(), req))(t)
			err := r.attach("on-"+node, node, req.GetVolumeCapabilities()[0])
			if expectError(t, err, code); code == codes.FailedPrecondition {
				expectError(t, err, code, "node-y", "no module")
			}
			if at := s.attached[backend.ID("on-"+node)]; at != "" && code != codes.OK {
				t.Errorf("%v: it is attached to %q", err, at)
			}
		}
	}
}

func TestSite_DirectoryIsAttachedToManyNodesAtOnce(t *testing.T) {
	r, _ := newSiteRig(t, backend.ManyHosts, func(c *Config) { c.Attach = true })
	req := inPool("v", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	check.Got(r.CreateVolume(r.ctx(), req))(t)
	for _, node := range []string{"node-x", "node-y", "node-down"} {
		check.OK(t, r.attach("v", node, req.GetVolumeCapabilities()[0]))
	}
}

func TestSite_ImageIsAttachedToOneNodeAtATime(t *testing.T) {
	r, _ := newSiteRig(t, backend.OneHost, func(c *Config) { c.Attach = true })
	req := inPool("v", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	check.Got(r.CreateVolume(r.ctx(), req))(t)
	attach := func(node string) error { return r.attach("v", node, req.GetVolumeCapabilities()[0]) }
	detach := func(node string) {
		t.Helper()
		check.Got(r.ControllerUnpublishVolume(r.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}))(t)
	}
	check.OK(t, attach("node-x"))
	check.OK(t, attach("node-x"))
	expectError(t, attach("node-y"), codes.FailedPrecondition, "node-x")
	detach("node-y")
	expectError(t, attach("node-y"), codes.FailedPrecondition, "node-x")
	detach("node-x")
	check.OK(t, attach("node-y"))
	detach("")
	check.OK(t, attach("node-x"))
}

func TestSite_DirectoryOfACephFSHasNoFileSystemOfItsOwn(t *testing.T) {
	for _, change := range []func(*csi.CreateVolumeRequest){
		func(q *csi.CreateVolumeRequest) { q.Parameters["csi.storage.k8s.io/fstype"] = "ext4" },
		func(q *csi.CreateVolumeRequest) { q.Parameters["mkfsOptions"] = "-m 1" },
		func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().FsType = "xfs" },
	} {
		for reach, code := range map[backend.Reach]codes.Code{backend.ManyHosts: codes.InvalidArgument, backend.OneHost: codes.OK} {
			r, _ := newSiteRig(t, reach)
			req := inPool("v", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
			change(req)
			_, err := r.CreateVolume(r.ctx(), req)
			expectError(t, err, code)
			if err != nil && !strings.Contains(err.Error(), "engine CephFS") {
				t.Errorf("it says %v", err)
			}
		}
	}
}

// recaller counts its calls.
type recaller struct {
	*backendtest.Memory
	got, recalled int
}

func (b *recaller) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	b.got++
	return b.Memory.Get(ctx, id)
}

func (b *recaller) Recall(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	b.recalled++
	return b.Memory.Get(ctx, id)
}

func TestStats_AreOfWhatTheBackendRecalls(t *testing.T) {
	b := &recaller{Memory: backendtest.NewMemory()}
	r := newRig(t, b)
	_, err := r.NodeGetVolumeStats(r.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: t.TempDir()})
	expectError(t, err, codes.NotFound)
	_, err = r.NodeGetVolumeHealth(r.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: "v"})
	expectError(t, err, codes.NotFound)
	if b.got != 0 || b.recalled != 2 {
		t.Errorf("it was asked %d times, and to recall %d times", b.got, b.recalled)
	}
}
