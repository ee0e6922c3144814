package sanity

import (
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// reasons says for each case of csi-sanity that is skipped why that is right, by a part of the case's name.
var reasons = map[string]string{
	"ControllerPublishVolume":   "a volume is attached by the node that has it; there is nothing to publish from outside, and the capability is not announced",
	"ControllerUnpublishVolume": "as ControllerPublishVolume",
	"volume lifecycle":          "goes through ControllerPublishVolume; the cases \"Node Service should work\" and \"should be idempotent\" are the same without it",
	"volume attribute class":    "volumes have no mutable parameters yet, and the capability is not announced",
	"ModifyVolume":              "as volume attribute class",
	"NodeGetStorageHealth":      "says how whole backends are, of which the driver knows the volumes only; the capability is not announced",
	"pagination should detect volumes added between pages": "switched off by csi-sanity itself, as it depends on the number of volumes; " +
		"TestList_PagesStayStableWhileVolumesComeAndGo of the driver asks the same and more",
	brokenCase: "csi-test 5.6.0 compares the topologies by reflection, which sees the size cache of the one that was sent; " +
		"TestSnapshot_IsWhereItsVolumeIs asks the same with a comparison of protobuf messages",
}

// brokenCase cannot pass whatever a driver does, so it is left out by name.
const brokenCase = "should succeed when creating a snapshot with accessibility requirements"

func skipArgument() string { return "-ginkgo.skip=" + regexp.QuoteMeta(brokenCase) }

func reasonFor(name string) string {
	for pattern, reason := range reasons {
		if strings.Contains(name, pattern) {
			return reason
		}
	}
	return ""
}

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
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.GetSnapshot().GetAccessibleTopology(); len(got) != 1 || !proto.Equal(got[0], here) {
		t.Errorf("the snapshot is at %v", got)
	}
}
