package render

import (
	"fmt"
	"regexp"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// reference is the format of an image reference. Whether the image exists is up to the registry.
var reference = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._:/@+\[\]-]{0,511}$`)

// registry is the format of a registry, with or without a path in it.
var registry = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*$`)

func checkImages(p *plan) error {
	if r := p.spec.ImageRegistry; r != "" && (!registry.MatchString(r) || len(r) > 255) {
		return fmt.Errorf("spec.imageRegistry: %.80q cannot be a registry: it must be a host such as registry.example:5000, perhaps with a path such as registry.example/mirror, without https:// and without / at its end", r)
	}
	images := p.spec.Images
	for _, image := range []struct {
		field     string
		reference v1beta1.Image
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
		{"ceph", images.Ceph},
	} {
		if image.reference != "" && !reference.MatchString(string(image.reference)) {
			return fmt.Errorf("spec.images.%s: %.80q cannot be an image: it must be a reference such as registry.example/holdfast:v1, of at most 512 letters, digits and . _ - + : / @ [ ]", image.field, image.reference)
		}
	}
	return nil
}
