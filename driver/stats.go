package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// NodeGetVolumeStats is time-boxed by the caller's context, whatever the file system does.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	id, _, err := parseHandle(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if req.GetVolumePath() == "" {
		return nil, fmt.Errorf("%w: volume_path is missing", backend.ErrInvalid)
	}
	if m, err := sharedAt(id, req.GetVolumePath()); m != nil && err == nil {
		return n.sharedStats(ctx, id, m)
	}
	v, err := n.recall(ctx, id)
	if err != nil {
		return nil, err
	}
	m, err := mountOf(v, req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	resp := &csi.NodeGetVolumeStatsResponse{}
	condition := conditionAt(ctx, v, m)
	if v.Mode == backend.Block {
		resp.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Size}}
	} else {
		usage, err := nodeops.Statfs(ctx, m.Target)
		if err != nil {
			return nil, err
		}
		resp.Usage = volumeUsage(v, usage)
	}
	setCondition(resp, condition)
	return resp, nil
}

func (n *node) recall(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return within(ctx, n, &n.recalled, id, false, func(ctx context.Context) (*backend.Volume, error) {
		if b, ok := n.Backend.(backend.Recaller); ok {
			return b.Recall(ctx, id)
		}
		return n.Backend.Get(ctx, id)
	})
}

// conditionAt is what the backend knows of a volume, and what its file system says where it is mounted.
func conditionAt(ctx context.Context, v *backend.Volume, m *nodeops.Mount) backend.Condition {
	if v.Condition.Abnormal {
		return v.Condition
	}
	var is nodeops.Health
	if v.Mode == backend.Block {
		is.Device = nodeops.IOErrors(nodeops.AttachedNode(m))
	} else {
		is = nodeops.FSHealth(ctx, m)
	}
	switch {
	case is.Errors != "":
		return backend.Condition{Abnormal: true, Reason: backend.FileSystemErrors, Message: is.Errors}
	case is.Device != "":
		return backend.Condition{Abnormal: true, Reason: backend.DeviceErrors, Message: is.Device}
	}
	return v.Condition
}

// mountOf returns v's mount at path, and ErrNotFound if it is not there: that is what callers of stats and expand must
// be reported for any path.
func mountOf(v *backend.Volume, path string) (*nodeops.Mount, error) {
	none := func(err error) error {
		return fmt.Errorf("%w: volume %s is not mounted at %s: %v", backend.ErrNotFound, v.ID, backend.Quote(path), err)
	}
	if err := parsePath("volume_path", path); err != nil {
		return nil, none(err)
	}
	resolved, err := resolve(path)
	if err != nil {
		return nil, none(err)
	}
	p, err := look(v)
	if err != nil {
		return nil, err
	}
	m, err := p.at(resolved)
	if m == nil {
		return nil, none(err)
	}
	return m, nil
}

// volumeUsage reports what the volume may hold. A directory's file system is that of the whole pool: there the
// volume's own size counts, as far as the pool still has room.
func volumeUsage(v *backend.Volume, u nodeops.FSUsage) []*csi.VolumeUsage {
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: u.Total, Used: u.Used, Available: u.Available}
	if v.Access.Directory != "" {
		bytes.Total, bytes.Used = v.Size, v.Used
		bytes.Available = max(min(u.Available, v.Size-v.Used), 0)
	}
	usage := []*csi.VolumeUsage{bytes}
	if u.Inodes > 0 { // btrfs counts none
		usage = append(usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: u.Inodes, Used: u.InodesUsed, Available: u.InodesFree})
	}
	return usage
}

// NodeGetVolumeHealth adds to what the backend knows whether the volume answers where it is used.
func (n *node) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id, _, err := parseHandle(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if all := sharedAmong(id, req.GetStagingTargetPath(), req.GetVolumePublishPath()); len(all) > 0 {
		return n.sharedHealth(ctx, id, all), nil
	}
	v, err := n.recall(ctx, id)
	if err != nil {
		return nil, err
	}
	h := health(v)
	for _, path := range []string{req.GetStagingTargetPath(), req.GetVolumePublishPath()} {
		if path == "" || v.Mode == backend.Block {
			continue
		}
		m, err := mountOf(v, path)
		if err == nil {
			seen := *v
			seen.Condition = conditionAt(ctx, v, m)
			h = health(&seen)
			_, err = nodeops.Statfs(ctx, m.Target)
		}
		if err != nil {
			h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
				Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: "MountNotAnswering", Message: err.Error(),
			})
			break
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}, nil
}
