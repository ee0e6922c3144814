package persistent

import (
	"cmp"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Plain says whether a volume was made by the provisioner of an NFS server. Its PersistentVolume needs no CSI driver.
func Plain(v *v1beta1.Volume) bool { return v.Spec.Labels[v1beta1.NFSServerLabel] != "" }

// Server is NAMESPACE/NAME of the NFS server that made a plain volume.
func Server(v *v1beta1.Volume) string { return v.Spec.Labels[v1beta1.NFSServerLabel] }

// Provisioner is what a class of the volume names as its provisioner.
func Provisioner(v *v1beta1.Volume) string {
	if Plain(v) {
		return v1beta1.ProvisionerName
	}
	return v1beta1.DriverName
}

// NamesFor are the names that the PersistentVolume may have, the best first: the one that the volume was made for. The
// server of a plain volume deletes it for no other.
func NamesFor(v *v1beta1.Volume) []string {
	if Plain(v) {
		return []string{v.Spec.Name}
	}
	return slices.Compact([]string{cmp.Or(v.Spec.Labels[v1beta1.PersistentVolumeLabel], v.Name), v.Name})
}

// Names says whether a PersistentVolume is one of the volume.
func Names(v *v1beta1.Volume, pv *core.PersistentVolume) bool {
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.CSI != nil:
		return source.CSI.Driver == v1beta1.DriverName && source.CSI.VolumeHandle == v.Name
	case source.NFS == nil:
		return false
	case pv.Annotations[v1beta1.ProvisionedByAnnotation] == v1beta1.ProvisionerName && pv.Annotations[v1beta1.NFSVolumeAnnotation] == v.Name &&
		pv.Annotations[v1beta1.NFSServerAnnotation] == v1beta1.ServerOf(v.Spec.Node):
		return true
	default: // written by hand, perhaps
		access := v.Status.Access
		return access != nil && access.NFS != nil && *access.NFS == v1beta1.VolumeNFS{Server: source.NFS.Server, Path: source.NFS.Path}
	}
}

// StoreOf is the identity of the data of an NFS server as a PersistentVolume of it says; empty if it is of no such server.
func StoreOf(pv *core.PersistentVolume, server string) string {
	if pv.Annotations[v1beta1.ProvisionedByAnnotation] != v1beta1.ProvisionerName || pv.Annotations[v1beta1.NFSServerAnnotation] != server {
		return ""
	}
	return pv.Annotations[v1beta1.NFSStoreAnnotation]
}

// DefaultAccess is what a claim of the volume asks for who says nothing else.
func DefaultAccess(v *v1beta1.Volume) []core.PersistentVolumeAccessMode {
	if v.Spec.Shared {
		return []core.PersistentVolumeAccessMode{core.ReadWriteMany}
	}
	return []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
}

// checkAccess refuses what the volume cannot be used as.
func checkAccess(v *v1beta1.Volume, modes []core.PersistentVolumeAccessMode) error {
	allowed, where := []core.PersistentVolumeAccessMode{core.ReadWriteOnce, core.ReadWriteOncePod}, "is on one node"
	switch {
	case Plain(v):
		allowed, where = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany, core.ReadWriteOnce}, "is a plain NFS volume"
	case v.Spec.Shared:
		allowed, where = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany, core.ReadWriteOnce, core.ReadWriteOncePod}, "is on an NFS server"
	}
	for _, mode := range modes {
		if !slices.Contains(allowed, mode) {
			return fmt.Errorf("access mode %s: Volume %s %s, which allows %v", mode, v.Name, where, allowed)
		}
	}
	if slices.Contains(modes, core.ReadWriteOncePod) && len(modes) > 1 {
		return fmt.Errorf("access modes %v: %s stands alone", modes, core.ReadWriteOncePod)
	}
	return nil
}
