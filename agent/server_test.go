package agent

import (
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestVolumeSpec_SharedAndServerAreOmitted(t *testing.T) {
	o := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Name: "a", Node: "shop.files.nfs.holdfast.dev", Shared: true, ServerRef: v1beta1.ReferenceTo("shop/files")}}
	if spec := volumeSpec(o); spec.Shared || spec.Server != "" {
		t.Errorf("the requested volume is %+v", spec)
	}
	if err := isOf(o, &backend.Volume{ID: "a", Name: "a"}); err != nil {
		t.Errorf("what was made for it before a restart: %v", err)
	}
}
