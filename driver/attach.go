package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// ControllerPublishVolume changes nothing for a volume on its node, and refuses every other node. A volume on a site may be
// used on every existing node, and an image in a Ceph cluster on one at a time, which is recorded.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if !c.Attach {
		return c.UnimplementedControllerServer.ControllerPublishVolume(ctx, req)
	}
	id, err := parseID("volume_id", req.GetVolumeId())
	switch {
	case err != nil:
		return nil, err
	case req.GetNodeId() == "":
		return nil, fmt.Errorf("%w: node_id is missing", backend.ErrInvalid)
	case req.GetVolumeCapability() == nil:
		return nil, fmt.Errorf("%w: volume_capability is missing", backend.ErrInvalid)
	}
	v, err := c.Backend.Get(ctx, id)
	if err == nil {
		err = checkFits(v, req.GetVolumeCapability())
	}
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{}, c.attach(ctx, v, req.GetNodeId())
}

func (c *controller) attach(ctx context.Context, v *backend.Volume, node string) error {
	here := nodeOf(c.topology(v.Node))
	if v.Reach == backend.ItsHost && node == here {
		return nil
	}
	if err := c.checkNode(node); err != nil {
		return err
	}
	if v.Reach == backend.ItsHost {
		return fmt.Errorf("%w: volume %s is on the disk of node %s and cannot be used on node %s; move the pod",
			backend.ErrPrecondition, v.ID, here, backend.Quote(node))
	}
	if err := c.checkClient(v, node); err != nil {
		return err
	}
	if a, is := c.Backend.(backend.Attacher); is && v.Reach == backend.OneHost {
		return a.Attach(ctx, v.ID, node)
	}
	return nil
}

// checkNode fails with ErrNotFound for a node that has no agent.
func (c *controller) checkNode(node string) error {
	t, ok := c.Backend.(backend.Topology)
	if !ok {
		return fmt.Errorf("%w: node %s; this driver serves node %s", backend.ErrNotFound, backend.Quote(node), c.NodeID)
	}
	return t.FindHost(node)
}

// checkClient refuses a node whose kernel cannot use a volume in a Ceph cluster. Only a pod that names its node gets there, and
// it learns from this what the node lacks: its kubelet says no more than that the topology of the volume leaves it out.
func (c *controller) checkClient(v *backend.Volume, node string) error {
	t, ok := c.Backend.(backend.Topology)
	if !ok || v.Shared {
		return nil
	}
	if err := t.CanUse(node, clientKey(v.Reach)); err != nil {
		return fmt.Errorf("volume %s cannot be attached to node %s: %w", v.ID, node, err)
	}
	return nil
}

// ControllerUnpublishVolume lets another node have a volume that one node at a time may use. It fails as long as the node may
// still write to the volume, so that Kubernetes attaches it to no other node.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if !c.Attach {
		return c.UnimplementedControllerServer.ControllerUnpublishVolume(ctx, req)
	}
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if d, is := c.Backend.(backend.Detacher); is && req.GetNodeId() != "" {
		if err := d.CheckDetached(ctx, id, req.GetNodeId()); err != nil {
			return nil, err
		}
	}
	if a, is := c.Backend.(backend.Attacher); is {
		err = a.Detach(ctx, id, req.GetNodeId())
	}
	return &csi.ControllerUnpublishVolumeResponse{}, err
}
