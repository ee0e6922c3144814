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
	p, m := n.ofServer(id, req.GetVolumePath())
	if p == nil {
		v, err := n.recall(ctx, id)
		if err != nil {
			return nil, err
		}
		if p, m, err = n.mountOf(v, req.GetVolumePath()); err != nil {
			return nil, err
		}
	}
	usage, condition, err := p.stats(ctx, m)
	resp := &csi.NodeGetVolumeStatsResponse{Usage: usage}
	setCondition(resp, condition)
	return resp, err
}

func (n *node) recall(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return within(ctx, n, &n.recalled, id, false, func(ctx context.Context) (*backend.Volume, error) {
		if b, ok := n.Backend.(backend.Recaller); ok {
			return b.Recall(ctx, id)
		}
		return n.Backend.Get(ctx, id)
	})
}

// mountOf returns v's mount at path, and ErrNotFound if it is not there: that is what callers of stats and expand must
// be reported for any path.
func (n *node) mountOf(v *backend.Volume, path string) (*mountState, *nodeops.Mount, error) {
	none := func(err error) (*mountState, *nodeops.Mount, error) {
		return nil, nil, fmt.Errorf("%w: volume %s is not mounted at %s: %v", backend.ErrNotFound, v.ID, backend.Quote(path), err)
	}
	if err := parsePath("volume_path", path); err != nil {
		return none(err)
	}
	resolved, err := resolve(path)
	if err != nil {
		return none(err)
	}
	p, err := n.stateOf(v)
	if err != nil {
		return nil, nil, err
	}
	m, err := p.at(resolved)
	if m == nil {
		return none(err)
	}
	return p, m, nil
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
	paths := []string{req.GetStagingTargetPath(), req.GetVolumePublishPath()}
	for _, path := range paths {
		if p, m := n.ofServer(id, path); p != nil {
			_, _, err := p.stats(ctx, m)
			return healthResponse(health(p.v), "ServerNotAnswering", err), nil
		}
	}
	v, err := n.recall(ctx, id)
	if err != nil {
		return nil, err
	}
	h := health(v)
	for _, path := range paths {
		if path == "" || v.Mode == backend.Block {
			continue
		}
		p, m, err := n.mountOf(v, path)
		if err == nil {
			seen := *v
			_, seen.Condition, err = p.stats(ctx, m)
			h = health(&seen)
		}
		if err != nil {
			return healthResponse(h, "MountNotAnswering", err), nil
		}
	}
	return healthResponse(h, "", nil), nil
}

// healthResponse adds why a volume does not answer, if it does not.
func healthResponse(h *csi.VolumeHealth, reason string, err error) *csi.NodeGetVolumeHealthResponse {
	if err != nil {
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: csi.VolumeHealthErrorType_INACCESSIBLE, Reason: reason, Message: err.Error(),
		})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}
}
