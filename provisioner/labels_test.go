package provisioner

import (
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/export"
)

// The packages know nothing of each other, and mean the same.
func TestLabels_WrittenAreReadByTheExports(t *testing.T) {
	for ours, theirs := range map[string]string{SquashLabel: export.LabelSquash, v1beta1.GIDLabel: export.LabelGID, ModeLabel: export.LabelMode} {
		if ours != theirs {
			t.Errorf("%s is written, %s is read", ours, theirs)
		}
	}
}
