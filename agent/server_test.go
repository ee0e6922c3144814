package agent

import (
	"testing"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestWhatAServerExportsIsReachedAtItsAddress(t *testing.T) {
	exported := backend.Access{NFS: &backend.NFS{Path: "/a"}}
	elsewhere := backend.Access{NFS: &backend.NFS{Server: "10.0.0.9", Path: "/a"}}
	for name, test := range map[string]struct {
		access  backend.Access
		address string
		want    *v1.VolumeNFS
	}{
		"at its address":                 {exported, "10.0.0.7", &v1.VolumeNFS{Server: "10.0.0.7", Path: "/a"}},
		"at the one it knows":            {elsewhere, "10.0.0.7", &v1.VolumeNFS{Server: "10.0.0.9", Path: "/a"}},
		"nowhere as long as it has none": {exported, "", nil},
		"nowhere if not exported":        {backend.Access{}, "10.0.0.7", nil},
	} {
		o := accessObject(test.access, test.address)
		switch {
		case (o == nil) != (test.want == nil):
			t.Errorf("%s: %+v", name, o)
		case o != nil && (*o.NFS != *test.want || o.Image != "" || o.Directory != ""):
			t.Errorf("%s: %+v", name, o)
		}
	}
	if o := accessObject(backend.Access{Image: "/i"}, ""); o.Image != "/i" || o.NFS != nil {
		t.Errorf("of a node it is %+v", o)
	}
}

func TestWhatChoseTheServerIsNotAskedOfItsDisk(t *testing.T) {
	o := &v1.Volume{Spec: v1.VolumeSpec{Name: "a", Node: "shop.files.nfs.holdfast.dev", Shared: true, Server: "shop/files"}}
	if spec := volumeSpec(o); spec.Shared || spec.Server != "" {
		t.Errorf("asked for is %+v", spec)
	}
	if err := isOf(o, &backend.Volume{ID: "a", Name: "a"}); err != nil {
		t.Errorf("what was made for it before a restart: %v", err)
	}
}
