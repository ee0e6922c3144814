//go:build ceph

package rbd

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

func TestMeta_FieldsAreThoseOfItsVersion(t *testing.T) {
	backendtest.Stored(t, meta{},
		"created", "ephemeral", "fsSize", "fsType", "id", "image", "incomplete", "inodes",
		"kind", "labels", "mkfsOptions", "mode", "name", "onNodeLoss", "provisioning", "size",
		"source.id", "source.kind", "version")
	backendtest.Stored(t, promise{},
		"charge", "deleted", "source", "state")
}
