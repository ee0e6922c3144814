//go:build ceph

package rbd

import (
	"testing"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestMeta_IsReadByRbdAndWrittenBesideAClientThatHasTheLock(t *testing.T) {
	at, b, _ := openWith(t, Config{})
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "a", Mode: backend.Block, Size: backend.Size{Required: size}, Incomplete: true}))(t)
	hands(t, at, func(pool *rados.IOContext) {
		image := check.Got(rbd.OpenImage(pool, "volume.a", rbd.NoSnapshot))(t)
		defer image.Close()
		check.OK(t, image.LockAcquire(rbd.LockModeExclusive))
		check.OK(t, b.Complete(t.Context(), "a"))
		if has, err := image.LockIsExclusiveOwner(); err != nil || !has {
			t.Errorf("the client has lost the lock: %v", err)
		}
	})
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
