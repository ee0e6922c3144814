package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/parameters"
)

// groupController takes snapshots of several volumes at one instant.
type groupController struct {
	csi.UnimplementedGroupControllerServer
	backend    backend.GroupSnapshotter
	controller *controller
}

func (*groupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (g *groupController) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := checkName("name", req.GetName()); err != nil {
		return nil, err
	}
	if _, err := readClass(&parameters.GroupSnapshot, req.GetParameters()); err != nil {
		return nil, err
	}
	spec := backend.GroupSpec{Name: req.GetName()}
	for _, s := range req.GetSourceVolumeIds() {
		id, err := parseID("source_volume_ids", s)
		if err != nil {
			return nil, err
		}
		spec.Sources = append(spec.Sources, id)
	}
	group, err := g.backend.SnapshotGroup(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: g.group(group)}, nil
}

func (g *groupController) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id, err := parseID("group_snapshot_id", req.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	if _, err := g.find(ctx, id, req.GetSnapshotIds()); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, g.backend.DeleteGroup(ctx, id)
}

func (g *groupController) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id, err := parseID("group_snapshot_id", req.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	group, err := g.find(ctx, id, req.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: g.group(group)}, nil
}

// find returns the group, and an error when the caller names members, but not the ones it has.
func (g *groupController) find(ctx context.Context, id backend.ID, members []string) (*backend.Group, error) {
	group, err := g.backend.GetGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	var have []string
	for _, s := range group.Snapshots {
		have = append(have, string(s.ID))
	}
	slices.Sort(have)
	if want := slices.Sorted(slices.Values(members)); len(want) > 0 && !slices.Equal(have, want) {
		return nil, fmt.Errorf("%w snapshot_ids: group %s consists of %q, not of the %d named", backend.ErrInvalid, id, have, len(want))
	}
	return group, nil
}

func (g *groupController) group(group *backend.Group) *csi.VolumeGroupSnapshot {
	resp := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: string(group.ID),
		CreationTime:    timestamppb.New(group.Created),
		ReadyToUse:      true,
	}
	for _, s := range group.Snapshots {
		member := g.controller.snapshot(s)
		resp.ReadyToUse = resp.ReadyToUse && member.ReadyToUse
		resp.Snapshots = append(resp.Snapshots, member)
	}
	return resp
}
