//go:build ceph

package rbd

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestMeta_IsThatWhichRbdShows(t *testing.T) {
	at, b, _ := openWith(t, Config{})
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "a", Mode: backend.Block, Size: backend.Size{Required: size}, Incomplete: true}))(t)
	check.OK(t, b.Complete(t.Context(), "a"))
	r, err := b.find(t.Context(), volumes, "a")
	check.OK(t, err)
	if said := check.Got(small.Command(t.Context(), "rbd", "image-meta", "get", at.Pool+"/volume.a", metaKey))(t); said != string(encode(r.meta)) || r.meta.Incomplete {
		t.Errorf("rbd says %s, it is %+v", said, r.meta)
	}
}

func TestMeta_FieldsAreThoseOfItsVersion(t *testing.T) {
	backendtest.Stored(t, meta{},
		"created", "ephemeral", "fsSize", "fsType", "id", "image", "incomplete", "inodes",
		"kind", "labels", "mkfsOptions", "mode", "name", "onNodeLoss", "provisioning", "size",
		"source.id", "source.kind", "version")
	backendtest.Stored(t, promise{},
		"charge", "deleted", "source", "state")
}
