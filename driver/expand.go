package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// NodeExpandVolume grows device and file system to the size of the volume.
func (n *node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if req.GetVolumePath() == "" {
		return nil, fmt.Errorf("%w: volume_path is missing", backend.ErrInvalid)
	}
	size, err := parseRange(req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	if p, _ := n.ofServer(id, req.GetVolumePath()); p != nil {
		return &csi.NodeExpandVolumeResponse{CapacityBytes: size.Required}, nil // its server has grown it
	}
	var v *backend.Volume
	err = n.do(ctx, id, "expand on node", func(ctx context.Context) (err error) {
		if v, err = n.Backend.Get(ctx, id); err != nil {
			return err
		}
		return explain(v, n.expand(ctx, v, size, req))
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, nil
}

func (n *node) expand(ctx context.Context, v *backend.Volume, size backend.Size, req *csi.NodeExpandVolumeRequest) error {
	if err := checkFits(v, req.GetVolumeCapability()); err != nil {
		return err
	}
	if size.Required > v.Size || size.Limit > 0 && size.Limit < v.Size {
		return fmt.Errorf("%w: volume %s has %s, requested are at least %s and at most %s (0: no limit); the size is that of its claim",
			backend.ErrOutOfRange, v.ID, backend.Readable(v.Size), backend.Readable(size.Required), backend.Readable(size.Limit))
	}
	p, m, err := n.mountOf(v, req.GetVolumePath())
	if err != nil {
		return err
	}
	return n.grown(ctx, v, p.grow(ctx, m))
}

// grown is the answer to growing a volume.
func (n *node) grown(ctx context.Context, v *backend.Volume, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, backend.ErrPrecondition) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: volume %s has %s, but not all of it can be used before its Ceph cluster answers: %w", backend.ErrUnavailable, v.ID, backend.Readable(v.Size), err)
	}
	n.stayedSmall(v, err)
	// FailedPrecondition is the only error with which the kubelet still starts the pod.
	return fmt.Errorf("%w: volume %s %s: %w", backend.ErrPrecondition, v.ID, stillSmall(v), err)
}
