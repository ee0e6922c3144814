package render

import (
	"fmt"
	"regexp"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// reference is what an image must look like. Whether there is one is told by the registry.
var reference = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._:/@+\[\]-]{0,511}$`)

func checkImages(p *plan) error {
	images := p.spec.Images
	for _, image := range []struct {
		field     string
		reference v1.Image
	}{
		{"holdfast", images.Holdfast},
		{"csiProvisioner", images.CSIProvisioner},
		{"csiAttacher", images.CSIAttacher},
		{"csiResizer", images.CSIResizer},
		{"csiSnapshotter", images.CSISnapshotter},
		{"snapshotController", images.SnapshotController},
		{"csiNodeDriverRegistrar", images.CSINodeDriverRegistrar},
		{"csiLivenessProbe", images.CSILivenessProbe},
		{"nfs", images.NFS},
	} {
		if image.reference != "" && !reference.MatchString(string(image.reference)) {
			return fmt.Errorf("spec.images.%s: %.80q cannot be an image: it must be a reference such as registry.example/holdfast:v1, of at most 512 letters, digits and . _ - + : / @ [ ]", image.field, image.reference)
		}
	}
	return nil
}
