package persistent

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Plain returns whether a volume was created by the provisioner of an NFS server. Its PersistentVolume needs no CSI
// driver.
func Plain(v *v1beta1.Volume) bool { return v.Spec.Labels[v1beta1.NFSServerLabel] != "" }

// Server returns NAMESPACE/NAME of the NFS server that created a plain volume.
func Server(v *v1beta1.Volume) string { return v.Spec.Labels[v1beta1.NFSServerLabel] }

// Provisioner returns the provisioner in the classes of the volume.
func Provisioner(v *v1beta1.Volume) string {
	if Plain(v) {
		return v1beta1.ProvisionerName
	}
	return v1beta1.DriverName
}

// NamesFor returns the names that the PersistentVolume may have, the preferred one first: that for which the volume was
// created. The server of a plain volume deletes its data only for a PersistentVolume of such a name.
func NamesFor(v *v1beta1.Volume) []string {
	name := v.Name
	if Plain(v) {
		name = v.Spec.Name
	}
	return slices.Compact([]string{cmp.Or(v.Spec.Labels[v1beta1.PersistentVolumeLabel], name), name})
}

// Names returns whether a PersistentVolume refers to the volume.
func Names(v *v1beta1.Volume, pv *core.PersistentVolume) bool {
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.CSI != nil:
		return source.CSI.Driver == v1beta1.DriverName && source.CSI.VolumeHandle == v.Name
	case source.NFS == nil:
		return false
	case pv.Annotations[v1beta1.ProvisionedByAnnotation] == v1beta1.ProvisionerName && pv.Annotations[v1beta1.NFSVolumeAnnotation] == v.Name &&
		pv.Annotations[v1beta1.NFSServerAnnotation] == v1beta1.ServerOf(v.Spec.Node):
		return true
	case isOfAnother(pv, v1beta1.ServerOf(v.Spec.Node)):
		return false
	default: // it may have been written by hand, with any address of the server; the path has the volume's ID
		access := v.Status.Access
		return access != nil && access.NFS != nil && strings.HasPrefix(path.Clean("/"+source.NFS.Path)+"/", path.Clean("/"+access.NFS.Path)+"/")
	}
}

// isOfAnother returns whether the name of a PersistentVolume is one that only an NFS server other than this gives. Two
// servers that took the same claim have a volume of the same ID each.
func isOfAnother(pv *core.PersistentVolume, server string) bool {
	maker := pv.Annotations[v1beta1.NFSServerAnnotation]
	return maker != "" && maker != server && strings.HasSuffix(pv.Name, "."+v1beta1.NodeOfServer(maker))
}

// StoreOf returns the identity of the data of an NFS server, as recorded in a PersistentVolume; empty if that belongs
// to another server.
func StoreOf(pv *core.PersistentVolume, server string) string {
	if pv.Annotations[v1beta1.ProvisionedByAnnotation] != v1beta1.ProvisionerName || pv.Annotations[v1beta1.NFSServerAnnotation] != server {
		return ""
	}
	return pv.Annotations[v1beta1.NFSStoreAnnotation]
}

func checkAccess(v *v1beta1.Volume, modes []core.PersistentVolumeAccessMode) error {
	allowed, where := []core.PersistentVolumeAccessMode{core.ReadWriteOnce, core.ReadWriteOncePod}, "is on one node"
	switch {
	case Plain(v):
		allowed, where = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany, core.ReadWriteOnce}, "is a plain NFS volume"
	case v.Spec.Shared || v.IsOfCephFS():
		allowed = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany, core.ReadWriteOnce, core.ReadWriteOncePod}
		where = "is on " + v1beta1.SiteOf(v.Spec.Node).String()
	case v1beta1.IsSite(v.Spec.Node):
		where = "is an image on " + v1beta1.SiteOf(v.Spec.Node).String()
	}
	for _, mode := range modes {
		if !slices.Contains(allowed, mode) {
			return fmt.Errorf("access mode %s: Volume %s %s, which allows %v", mode, v.Name, where, allowed)
		}
	}
	if slices.Contains(modes, core.ReadWriteOncePod) && len(modes) > 1 {
		return fmt.Errorf("access modes %v: %s cannot be combined with others", modes, core.ReadWriteOncePod)
	}
	return nil
}
