package provisioner

import (
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The labels of a volume that this package makes. What follows from them later, such as what a deletion does, is read
// from the volume and not from the PersistentVolume, which users may change.
const (
	// ServerLabel names the server that made the volume, as NAMESPACE/NAME. Only volumes with it are ever deleted here.
	ServerLabel = "nfs.holdfast.dev/server"
	// OnDeleteLabel is what becomes of the data.
	OnDeleteLabel = "nfs.holdfast.dev/on-delete"
	// ClaimUIDLabel is the UID of the claim.
	ClaimUIDLabel = "nfs.holdfast.dev/claim-uid"

	// How the volume is exported: what is not said is as the server does it by default.
	SquashLabel = "export.holdfast.dev/squash"
	// GIDLabel is the group that the volume's root directory is given to.
	GIDLabel = "export.holdfast.dev/gid"
	// ModeLabel is the mode of the volume's root directory.
	ModeLabel = "export.holdfast.dev/mode"
)

// The annotations of a PersistentVolume.
const (
	// ServerAnnotation names the server that made the volume, as NAMESPACE/NAME.
	ServerAnnotation = v1.NFSServerAnnotation
	// StoreAnnotation is the identity of the server's data, which is another if the data was lost and begun anew.
	StoreAnnotation = "nfs.holdfast.dev/store"
	// VolumeAnnotation is the ID of the volume on the server.
	VolumeAnnotation = "nfs.holdfast.dev/volume"
	// OnDeleteAnnotation shows what becomes of the data; what counts is the volume's label.
	OnDeleteAnnotation = "nfs.holdfast.dev/on-delete"
	// gidAnnotation tells the kubelet which group to give to the pods that use the volume.
	gidAnnotation = "pv.beta.kubernetes.io/gid"

	provisionedBy  = "pv.kubernetes.io/provisioned-by"
	wantedOf       = "volume.kubernetes.io/storage-provisioner"
	wantedOfBefore = "volume.beta.kubernetes.io/storage-provisioner"
)

// Made says whether a volume was made by this package, on whatever server.
func Made(v *backend.Volume) bool { return v.Labels[ServerLabel] != "" }
