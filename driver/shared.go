package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// A shared volume is on an NFS server, which every node reaches. What a node needs to know of it travels in the volume's
// context: the backend of a node knows only its own volumes.

const (
	sharedKey = "shared"
	serverKey = "nfsServer"

	serverContext = "holdfast.dev/nfs-server"
	pathContext   = "holdfast.dev/nfs-path"
)

const readersOnly = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY

var multiNode = []csi.VolumeCapability_AccessMode_Mode{
	readersOnly, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

func setShared(s *backend.VolumeSpec, value string) error {
	if value != "true" && value != "false" {
		return errors.New("it must be true or false")
	}
	s.Shared = value == "true"
	return nil
}

func setServer(s *backend.VolumeSpec, value string) error {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("it must be NAMESPACE/NAME of an NFSServer")
	}
	s.Server = value
	return nil
}

// checkShared refuses what a shared volume cannot have, and what only a shared one can.
func checkShared(spec backend.VolumeSpec, a access) error {
	switch {
	case !spec.Shared && spec.Server != "":
		return fmt.Errorf("%w parameter %s=%s: only a shared volume has a server; add %s: \"true\", or leave it out", backend.ErrInvalid, serverKey, backend.Quote(spec.Server), sharedKey)
	case !spec.Shared:
		return nil
	case spec.OnNodeLoss != "":
		return fmt.Errorf("%w parameter onNodeLoss=%s: a shared volume is on no node, and a server is never given up; leave it out", backend.ErrInvalid, spec.OnNodeLoss)
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
		return fmt.Errorf("%w volume_capability: a shared volume is a file system, never block; use volumeMode Filesystem, or a class without %s", backend.ErrInvalid, sharedKey)
	case !shared && slices.Contains(multiNode, a.writer):
		return fmt.Errorf("%w volume_capability: access mode %s: volumes are on one node and cannot be shared between nodes; use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod), or a class with %s: \"true\"",
			backend.ErrInvalid, a.writer, sharedKey)
	}
	return nil
}

// createShared makes a volume that is on no node, wherever the caller would have it. All that its topology may say is
// that it can be mounted.
func (c *controller) createShared(ctx context.Context, spec backend.VolumeSpec, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if _, ok := c.Backend.(backend.Sharer); !ok {
		return nil, fmt.Errorf("%w parameter %s=true: there are no NFS servers here; leave it out", backend.ErrInvalid, sharedKey)
	}
	v, err := c.create(ctx, spec, req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if v.Access.NFS == nil || v.Access.NFS.Server == "" {
		return nil, fmt.Errorf("%w: volume %s is made, but NFS server %s has not said yet how it is reached; ask again", backend.ErrUnavailable, v.ID, v.Server)
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
