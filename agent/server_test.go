package agent

import (
	"testing"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestWhatChoseTheServerIsNotAskedOfItsDisk(t *testing.T) {
	o := &v1.Volume{Spec: v1.VolumeSpec{Name: "a", Node: "shop.files.nfs.holdfast.dev", Shared: true, Server: "shop/files"}}
	if spec := volumeSpec(o); spec.Shared || spec.Server != "" {
		t.Errorf("asked for is %+v", spec)
	}
	if err := isOf(o, &backend.Volume{ID: "a", Name: "a"}); err != nil {
		t.Errorf("what was made for it before a restart: %v", err)
	}
}
