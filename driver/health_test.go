package driver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// condition reads what a caller of CSI 1.12 and before finds in field 2 of a message.
func condition(t *testing.T, m proto.Message) (abnormal bool, message string) {
	t.Helper()
	number, _, n := protowire.ConsumeTag(m.ProtoReflect().GetUnknown())
	body, _ := protowire.ConsumeBytes(m.ProtoReflect().GetUnknown()[max(n, 0):])
	if number != 2 {
		t.Fatalf("%v has no volume condition", m)
	}
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		body = body[n:]
		switch {
		case number == 1 && kind == protowire.VarintType:
			value, n := protowire.ConsumeVarint(body)
			abnormal, body = protowire.DecodeBool(value), body[n:]
		case number == 2 && kind == protowire.BytesType:
			value, n := protowire.ConsumeString(body)
			message, body = value, body[n:]
		default:
			t.Fatalf("field %d of type %d is no part of a condition", number, kind)
		}
	}
	return abnormal, message
}

func TestHealth_ConditionOfAVolumeReachesNewAndOldCallers(t *testing.T) {
	b := newScripted()
	volumes := map[backend.ID]*backend.Volume{
		"good": {ID: "good", Size: gib},
		"gone": {ID: "gone", Condition: backend.Condition{Abnormal: true, Message: "its image is missing"}},
		"slow": {ID: "slow", Size: gib, Access: backend.Access{Image: "/i"}, Condition: backend.Condition{Abnormal: true, Message: "its image is short"}},
	}
	b.get = func(id backend.ID) (*backend.Volume, error) { return volumes[id], nil }
	b.list = func() ([]*backend.Volume, error) {
		return []*backend.Volume{volumes["gone"], volumes["good"], volumes["slow"]}, nil
	}
	r := newRig(t, b)
	for id, want := range map[backend.ID]csi.VolumeHealthErrorType{
		"good": csi.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE,
		"gone": csi.VolumeHealthErrorType_INACCESSIBLE,
		"slow": csi.VolumeHealthErrorType_DEGRADED,
	} {
		ill := want != csi.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE
		v := check.Got(r.ControllerGetVolume(r.ctx(), &csi.ControllerGetVolumeRequest{VolumeId: string(id)}))(t)
		if abnormal, message := condition(t, v.GetStatus()); abnormal != ill || ill && message != volumes[id].Condition.Message || message == "" {
			t.Errorf("%s: abnormal %t, %q", id, abnormal, message)
		}
		fromController := check.Got(r.ControllerGetVolumeHealth(r.ctx(), &csi.ControllerGetVolumeHealthRequest{VolumeId: string(id)}))(t)
		fromNode := check.Got(r.NodeGetVolumeHealth(r.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: string(id)}))(t)
		for _, h := range []*csi.VolumeHealth{fromController.GetVolumeHealth(), fromNode.GetVolumeHealth()} {
			if h.GetVolumeId() != string(id) || ill != (len(h.GetHealthStatuses()) == 1) {
				t.Fatalf("%s: %v", id, h)
			}
			if ill && (h.GetHealthStatuses()[0].GetStatus() != want || h.GetHealthStatuses()[0].GetReason() == "" ||
				h.GetHealthStatuses()[0].GetMessage() != volumes[id].Condition.Message) {
				t.Errorf("%s: %v", id, h)
			}
		}
	}
	listed := check.Got(r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{}))(t)
	if abnormal, message := condition(t, listed.GetEntries()[0].GetStatus()); !abnormal || message != "its image is missing" {
		t.Errorf("listed as abnormal %t, %q", abnormal, message)
	}
	ailing, err := r.ControllerListVolumeHealth(r.ctx(), &csi.ControllerListVolumeHealthRequest{MaxEntries: 1})
	if err != nil || len(ailing.GetEntries()) != 1 || ailing.GetEntries()[0].GetVolumeId() != "gone" {
		t.Fatalf("got %v, %v", ailing, err)
	}
	rest, err := r.ControllerListVolumeHealth(r.ctx(), &csi.ControllerListVolumeHealthRequest{StartingToken: ailing.GetNextToken()})
	if err != nil || len(rest.GetEntries()) != 1 || rest.GetEntries()[0].GetVolumeId() != "slow" || rest.GetNextToken() != "" {
		t.Errorf("got %v, %v", rest, err)
	}
}
