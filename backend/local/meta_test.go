package local

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

func TestMeta_FieldsAreThoseOfItsVersion(t *testing.T) {
	backendtest.Stored(t, meta{},
		"charge", "content.fsSize", "content.fsType", "content.inodes", "content.inodesLeast", "content.mkfsOptions", "content.mode", "content.project",
		"content.provisioning", "content.readOnly", "content.size", "created", "ephemeral", "group.id", "group.pool", "group.poolID",
		"id", "incomplete", "labels", "members.pool", "members.snapshot", "members.source", "name", "onNodeLoss",
		"source.id", "source.kind", "version")
}
