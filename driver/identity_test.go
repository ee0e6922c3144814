package driver

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// advertised lists everything that a driver says it can do.
func (r *rig) advertised() (all []string) {
	r.Helper()
	plugin := check.Got(r.GetPluginCapabilities(r.ctx(), &csi.GetPluginCapabilitiesRequest{}))(r)
	for _, c := range plugin.GetCapabilities() {
		if e := c.GetVolumeExpansion(); e != nil {
			all = append(all, "expansion "+e.GetType().String())
		} else {
			all = append(all, c.GetService().GetType().String())
		}
	}
	controller := check.Got(r.ControllerGetCapabilities(r.ctx(), &csi.ControllerGetCapabilitiesRequest{}))(r)
	for _, c := range controller.GetCapabilities() {
		all = append(all, "controller "+c.GetRpc().GetType().String())
	}
	return all
}

var always = []string{
	"CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS", "controller CREATE_DELETE_VOLUME", "controller LIST_VOLUMES",
	"controller GET_VOLUME", "controller GET_CAPACITY", "controller SINGLE_NODE_MULTI_WRITER",
	"controller GET_VOLUME_HEALTH", "controller LIST_VOLUME_HEALTH", "controller 11",
	"GROUP_CONTROLLER_SERVICE", "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", "expansion ONLINE",
	"controller EXPAND_VOLUME", "controller CLONE_VOLUME", "controller CREATE_DELETE_SNAPSHOT",
	"controller LIST_SNAPSHOTS", "controller GET_SNAPSHOT",
}

func TestCapabilities_OfTheBackendAreAdvertised(t *testing.T) {
	r, _ := newMemoryRig(t)
	info, err := r.GetPluginInfo(r.ctx(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "csi.holdfast.dev" || info.GetVendorVersion() != "1.2.3" {
		t.Errorf("it is %v, %v", info, err)
	}
	got, want := r.advertised(), slices.Clone(always)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("advertised:\n%q\nwant:\n%q", got, want)
	}
}

func TestCapabilities_GroupsAreNeitherAdvertisedNorTakenWithoutABackendForThem(t *testing.T) {
	r := newRig(t, plain{backendtest.NewMemory()})
	if slices.Contains(r.advertised(), "GROUP_CONTROLLER_SERVICE") {
		t.Error("GROUP_CONTROLLER_SERVICE is advertised")
	}
	_, err := r.CreateVolumeGroupSnapshot(r.ctx(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g"})
	expectError(t, err, codes.Unimplemented)
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}
