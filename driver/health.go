package driver

import (
	"cmp"
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/backend"
)

// CSI 1.13 replaced the volume condition by the volume health calls. Callers in use still read the condition, so
// it is sent in the field and announced by the capabilities it had until then.
const (
	controllerVolumeCondition csi.ControllerServiceCapability_RPC_Type = 11
	nodeVolumeCondition       csi.NodeServiceCapability_RPC_Type       = 4

	conditionField protowire.Number = 2 // in each message that had one
)

// setCondition adds c to a message as VolumeCondition{abnormal, message}.
func setCondition(m proto.Message, c backend.Condition) {
	var condition []byte
	if c.Abnormal {
		condition = protowire.AppendTag(condition, 1, protowire.VarintType)
		condition = protowire.AppendVarint(condition, protowire.EncodeBool(true))
	}
	message := c.Message
	if !c.Abnormal {
		message = "volume is healthy" // the field was required
	}
	condition = protowire.AppendTag(condition, 2, protowire.BytesType)
	condition = protowire.AppendString(condition, message)
	field := protowire.AppendTag(nil, conditionField, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(field, condition))
}

func (c *controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v, err := c.Backend.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health(v)}, nil
}

func (c *controller) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	all, err := c.Backend.List(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v *backend.Volume) bool { return !v.Condition.Abnormal })
	ailing, next, err := page(all, volumeID, req)
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range ailing {
		resp.Entries = append(resp.Entries, health(v))
	}
	return resp, nil
}

// health is the backend's condition of a volume; a volume without access is out of reach.
func health(v *backend.Volume) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: string(v.ID)}
	if v.Condition.Abnormal {
		kind := csi.VolumeHealthErrorType_DEGRADED
		if v.Access == (backend.Access{}) {
			kind = csi.VolumeHealthErrorType_INACCESSIBLE
		}
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: kind, Reason: string(cmp.Or(v.Condition.Reason, "VolumeDamaged")), Message: v.Condition.Message,
		})
	}
	return h
}
