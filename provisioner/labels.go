package provisioner

import (
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The labels that this package puts on its volumes, beside those of package v1beta1. A deletion reads them from the
// volume and not from the PersistentVolume, which users may change. Only volumes with v1beta1.NFSServerLabel are ever
// deleted here.
const (
	// ClaimUIDLabel is the UID of the claim.
	ClaimUIDLabel = "nfs.holdfast.dev/claim-uid"
	// SquashLabel is how the export squashes users; without it the server's default applies.
	SquashLabel = "export.holdfast.dev/squash"
	// ModeLabel is the mode of the volume's root directory.
	ModeLabel = "export.holdfast.dev/mode"
)

// The annotations of a claim.
const (
	wantedOf       = "volume.kubernetes.io/storage-provisioner"
	wantedOfBefore = "volume.beta.kubernetes.io/storage-provisioner"
)

// Made says whether this package created a volume, on any server.
func Made(v *backend.Volume) bool { return v.Labels[v1beta1.NFSServerLabel] != "" }
