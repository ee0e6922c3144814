package provisioner

import (
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The labels of a volume that this package makes, beside those of package v1. What follows from them later, such as what a
// deletion does, is read from the volume and not from the PersistentVolume, which users may change. Only volumes with
// v1beta1.NFSServerLabel are ever deleted here.
const (
	// ClaimUIDLabel is the UID of the claim.
	ClaimUIDLabel = "nfs.holdfast.dev/claim-uid"
	// SquashLabel is how the volume is exported: what is not said is as the server does it by default.
	SquashLabel = "export.holdfast.dev/squash"
	// ModeLabel is the mode of the volume's root directory.
	ModeLabel = "export.holdfast.dev/mode"
)

// The annotations of a claim.
const (
	wantedOf       = "volume.kubernetes.io/storage-provisioner"
	wantedOfBefore = "volume.beta.kubernetes.io/storage-provisioner"
)

// Made says whether a volume was made by this package, on whatever server.
func Made(v *backend.Volume) bool { return v.Labels[v1beta1.NFSServerLabel] != "" }
