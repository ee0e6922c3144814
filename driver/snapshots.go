package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/parameters"
)

func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := checkName("name", req.GetName()); err != nil {
		return nil, err
	}
	source, err := parseID("source_volume_id", req.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := readClass(&parameters.Snapshot, req.GetParameters()); err != nil {
		return nil, err
	}
	if _, err := c.candidates(req.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	s, err := c.storage.Snapshot(ctx, backend.SnapshotSpec{Name: req.GetName(), Source: source})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: c.snapshot(s)}, nil
}

func (c *controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id, err := parseID("snapshot_id", req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, c.storage.DeleteSnapshot(ctx, id)
}

func (c *controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	id, err := parseID("snapshot_id", req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	s, err := c.storage.GetSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: c.snapshot(s)}, nil
}

func (c *controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := c.matching(ctx, req)
	if err != nil {
		return nil, err
	}
	snapshots, next, err := page(all, snapshotID, req)
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range snapshots {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: c.snapshot(s)})
	}
	return resp, nil
}

// matching returns the snapshots that a list request does not filter out. An id that does not exist filters all.
func (c *controller) matching(ctx context.Context, req *csi.ListSnapshotsRequest) (all []*backend.Snapshot, err error) {
	var source backend.ID
	if req.GetSourceVolumeId() != "" {
		if source, err = parseID("source_volume_id", req.GetSourceVolumeId()); err != nil {
			return nil, err
		}
	}
	if req.GetSnapshotId() == "" {
		all, err = c.storage.ListSnapshots(ctx)
	} else {
		all, err = c.one(ctx, req.GetSnapshotId())
	}
	return slices.DeleteFunc(all, func(s *backend.Snapshot) bool { return source != "" && s.Source != source }), err
}

func (c *controller) one(ctx context.Context, snapshot string) ([]*backend.Snapshot, error) {
	id, err := parseID("snapshot_id", snapshot)
	if err != nil {
		return nil, err
	}
	s, err := c.storage.GetSnapshot(ctx, id)
	if backend.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	return []*backend.Snapshot{s}, nil
}

// snapshot is the one builder of a Snapshot response. A damaged snapshot exists but cannot be restored.
func (c *controller) snapshot(s *backend.Snapshot) *csi.Snapshot {
	var where []*csi.Topology
	if !s.Shared {
		where = []*csi.Topology{c.topology(s.Node)}
	}
	return &csi.Snapshot{
		SnapshotId:         string(s.ID),
		SourceVolumeId:     string(s.Source),
		GroupSnapshotId:    string(s.Group),
		SizeBytes:          s.Size,
		CreationTime:       timestamppb.New(s.Created),
		ReadyToUse:         !s.Condition.Abnormal,
		AccessibleTopology: where,
	}
}
