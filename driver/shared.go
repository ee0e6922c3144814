package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/parameters"
)

// A shared volume is on an NFS server, which every node reaches. What a node needs to know of it travels in the volume's
// context: the backend of a node knows only its own volumes.

const (
	serverContext = "holdfast.dev/nfs-server"
	pathContext   = "holdfast.dev/nfs-path"
)

const readersOnly = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY

var multiNode = []csi.VolumeCapability_AccessMode_Mode{
	readersOnly, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// checkShared refuses what a shared volume cannot have.
func checkShared(spec backend.VolumeSpec, a access) error {
	if !spec.Shared {
		return nil
	}
	if err := nodeops.CheckNFSOptions(a.flags); err != nil {
		return fmt.Errorf("%w volume_capability: %w", backend.ErrInvalid, err)
	}
	return nil
}

// suits says whether a volume that is shared, or is not, can be used as asked.
func (a access) suits(shared bool) error {
	switch {
	case shared && a.mode == backend.Block:
		return fmt.Errorf("%w volume_capability: a shared volume is a file system, never block; use volumeMode Filesystem, or a class without %s", backend.ErrInvalid, parameters.Shared)
	case !shared && slices.Contains(multiNode, a.writer):
		return fmt.Errorf("%w volume_capability: access mode %s: volumes are on one node and cannot be shared between nodes; use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod), or a class with %s: \"true\"",
			backend.ErrInvalid, a.writer, parameters.Shared)
	}
	return nil
}

// createShared makes a volume that is on no node, wherever the caller would have it. All that its topology may say is
// that it can be mounted.
func (c *controller) createShared(ctx context.Context, spec backend.VolumeSpec, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if _, ok := c.Backend.(backend.Sharer); !ok {
		return nil, fmt.Errorf("%w parameter %s=true: there are no NFS servers here; leave it out", backend.ErrInvalid, parameters.Shared)
	}
	v, err := c.create(ctx, spec, req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if v.Access.NFS == nil || v.Access.NFS.Server == "" {
		return nil, fmt.Errorf("%w: volume %s is created, but NFS server %s has not reported its address yet; retry", backend.ErrUnavailable, v.ID, v.Server)
	}
	resp := &csi.CreateVolumeResponse{Volume: c.volume(v)}
	resp.Volume.AccessibleTopology = sharedTopology(req.GetAccessibilityRequirements())
	return resp, nil
}

// contextOf is nil as long as it is not known how a shared volume is reached.
func contextOf(v *backend.Volume) map[string]string {
	if v.Access.NFS == nil {
		return nil
	}
	return map[string]string{serverContext: v.Access.NFS.Server, pathContext: v.Access.NFS.Path}
}

// sharedCapacity is the same at every node. That there is no server now is no mistake of the caller.
func (c *controller) sharedCapacity(ctx context.Context, spec backend.VolumeSpec) (*csi.GetCapacityResponse, error) {
	sharer, ok := c.Backend.(backend.Sharer)
	if !ok {
		return &csi.GetCapacityResponse{}, nil
	}
	room, err := sharer.SharedCapacity(ctx, spec.Server, spec.Pool)
	switch {
	case errors.Is(err, backend.ErrNotFound), errors.Is(err, backend.ErrUnavailable):
		return &csi.GetCapacityResponse{}, nil
	case err != nil:
		return nil, err
	}
	return capacityResponse(room), nil
}
