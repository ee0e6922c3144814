package sanity

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestSnapshot_IsWhereItsVolumeIs(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	here := &csi.Topology{Segments: map[string]string{"topology.holdfast.dev/node": "node"}}
	there := &csi.Topology{Segments: map[string]string{"topology.holdfast.dev/node": "elsewhere"}}
	v := w.create("v", nil)
	req := &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.GetVolumeId(), AccessibilityRequirements: &csi.TopologyRequirement{
		Requisite: []*csi.Topology{there},
	}}
	_, err := w.CreateSnapshot(w.ctx(), req)
	w.expectError(err, codes.ResourceExhausted, "node")
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{here}, Preferred: []*csi.Topology{here}}
	resp, err := w.CreateSnapshot(w.ctx(), req)
	check.OK(t, err)
	if got := resp.GetSnapshot().GetAccessibleTopology(); len(got) != 1 || !proto.Equal(got[0], here) {
		t.Errorf("the snapshot is at %v", got)
	}
}
