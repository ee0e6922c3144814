package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// node mounts volumes at the paths where they are used. One operation runs at a time on each volume.
type node struct {
	csi.UnimplementedNodeServer
	*Driver
	slowReads sync.Once // for the log
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		nodeVolumeCondition,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.NodeID, MaxVolumesPerNode: n.MaxVolumes, AccessibleTopology: n.topology(n.NodeID)}, nil
}

// do runs f alone on a volume; it outlives its caller.
func (n *node) do(ctx context.Context, id backend.ID, verb string, f func(context.Context) error) error {
	_, err := backend.Do(ctx, &n.ops, id, verb, func(ctx context.Context) (_ any, err error) {
		defer n.calls.recoverTo(&err, verb)
		return nil, f(ctx)
	})
	return err
}

// explain adds what the backend knows to be wrong with a volume to an error of using it. Of a directory of a CephFS its cluster says
// that.
func explain(v *backend.Volume, err error) error {
	if err != nil && v.Access.CephFS == nil && v.Condition.Abnormal && v.Condition.Reason == backend.Damaged {
		return fmt.Errorf("%w: volume %s is damaged: %s: %w", backend.ErrPrecondition, v.ID, v.Condition.Message, err)
	}
	return err
}

// accessible refuses a volume that the backend cannot give access to.
func accessible(v *backend.Volume) error {
	if v.Access == (backend.Access{}) {
		return explain(v, errors.New("there is nothing that could be mounted"))
	}
	return nil
}
