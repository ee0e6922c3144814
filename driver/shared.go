package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/parameters"
)

// A shared volume is on an NFS server, which every node reaches. What a node needs to know of it travels in the volume's
// context: the backend of a node knows only its own volumes.

const (
	serverContext = "holdfast.dev/nfs-server"
	// populatesContext is that of the PersistentVolume by which a pod brings the content.
	populatesContext = "holdfast.dev/populates"
	portContext      = "holdfast.dev/nfs-port" // not of a server that has that of NFS
	pathContext      = "holdfast.dev/nfs-path"
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

// suits says whether a volume that these hosts can use can be used as asked.
func (a access) suits(reach backend.Reach) error {
	const single = "use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod), or a class"
	many := slices.Contains(multiNode, a.writer)
	switch {
	case reach == backend.ManyHosts && a.mode == backend.Block:
		return fmt.Errorf("%w volume_capability: a shared volume is a file system, never block, and so is one of a pool with engine CephFS; use volumeMode Filesystem, or a class without %s whose pool has another engine", backend.ErrInvalid, parameters.Shared)
	case many && reach == backend.OneHost && a.mode == backend.Block:
		return fmt.Errorf("%w volume_capability: access mode %s: an image in a Ceph cluster is used by one node at a time, also as a raw block device, where nothing would keep two writers apart; use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod)",
			backend.ErrInvalid, a.writer)
	case many && reach == backend.OneHost:
		return fmt.Errorf("%w volume_capability: access mode %s: an image in a Ceph cluster is used by one node at a time; %s whose pool has engine CephFS", backend.ErrInvalid, a.writer, single)
	case many && reach == backend.ItsHost:
		return fmt.Errorf("%w volume_capability: access mode %s: volumes are on one node and cannot be shared between nodes; %s with %s: \"true\"", backend.ErrInvalid, a.writer, single, parameters.Shared)
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
	c := map[string]string{serverContext: v.Access.NFS.Server, pathContext: v.Access.NFS.Path}
	if port := v.Access.NFS.Port; port != 0 {
		c[portContext] = strconv.Itoa(int(port))
	}
	return c
}

// siteCapacity is the same at every node that can use such volumes. That there is no site now is no mistake of the caller.
func (c *controller) siteCapacity(ctx context.Context, spec backend.VolumeSpec, node string) (*csi.GetCapacityResponse, error) {
	var room backend.Capacity
	err := backend.ErrNotFound
	if sharer, ok := c.Backend.(backend.Sharer); ok && spec.Shared {
		room, err = sharer.SharedCapacity(ctx, spec.Server, spec.Pool)
	} else if !spec.Shared {
		room, err = c.Backend.Capacity(ctx, spec.Pool)
	}
	if t, ok := c.Backend.(backend.Topology); ok && !spec.Shared && node != "" && err == nil {
		err = t.CanUse(node, clientKey(c.reach(spec)))
	}
	switch {
	case errors.Is(err, backend.ErrNotFound), errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrPrecondition):
		return &csi.GetCapacityResponse{}, nil
	case err != nil:
		return nil, err
	}
	return capacityResponse(room), nil
}
