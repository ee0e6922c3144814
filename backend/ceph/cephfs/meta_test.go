//go:build ceph

package cephfs

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

func TestMeta_FieldsAreThoseOfItsVersion(t *testing.T) {
	backendtest.Stored(t, meta{},
		"changed", "charge", "copy.bytes", "copy.snapshot", "copy.subvolume", "copy.temporary", "created", "deleted", "ephemeral",
		"id", "incomplete", "inodes", "labels", "name", "onNodeLoss", "path", "size",
		"source.id", "source.kind", "state", "version")
	backendtest.Stored(t, snapshotMeta{},
		"charge", "created", "id", "name", "size", "source", "state", "version")
}
