package provisioner

import (
	"testing"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend/export"
)

// The packages know nothing of each other, and mean the same.
func TestTheExportsReadTheLabelsThatAreWritten(t *testing.T) {
	for ours, theirs := range map[string]string{SquashLabel: export.LabelSquash, v1.GIDLabel: export.LabelGID, ModeLabel: export.LabelMode} {
		if ours != theirs {
			t.Errorf("%s is written, %s is read", ours, theirs)
		}
	}
}
