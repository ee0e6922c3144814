package convert

import (
	"cmp"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func toAccess(a *v1beta1.VolumeAccess) backend.Access {
	if a == nil {
		return backend.Access{}
	}
	access := backend.Access{Image: a.Image, Directory: a.Directory}
	if a.NFS != nil {
		access.NFS = &backend.NFS{Server: a.NFS.Server, Port: a.NFS.Port, Path: a.NFS.Path}
	}
	if r := a.RBD; r != nil {
		access.RBD = &backend.RBD{Cluster: toCeph(r.Cluster), Pool: r.Pool, Namespace: r.Namespace, Image: r.Image, ImageID: r.ImageID}
	}
	if c := a.CephFS; c != nil {
		access.CephFS = &backend.CephFS{Cluster: toCeph(c.Cluster), FileSystem: c.FileSystem, Path: c.Path}
	}
	return access
}

// fromAccess returns nil for an empty Access, and for an export whose address is unknown.
func fromAccess(a backend.Access, address string) *v1beta1.VolumeAccess {
	if a == (backend.Access{}) {
		return nil
	}
	o := &v1beta1.VolumeAccess{Image: a.Image, Directory: a.Directory}
	if a.NFS != nil {
		if address = cmp.Or(a.NFS.Server, address); address == "" {
			return nil
		}
		o.NFS = &v1beta1.VolumeNFS{Server: address, Port: a.NFS.Port, Path: a.NFS.Path}
	}
	if r := a.RBD; r != nil {
		o.RBD = &v1beta1.VolumeRBD{Cluster: fromCeph(r.Cluster), Pool: r.Pool, Namespace: r.Namespace, Image: r.Image, ImageID: r.ImageID}
	}
	if c := a.CephFS; c != nil {
		o.CephFS = &v1beta1.VolumeCephFS{Cluster: fromCeph(c.Cluster), FileSystem: c.FileSystem, Path: c.Path}
	}
	return o
}

// Both types have the same fields in the same order: a field that is added to only one of them does not compile.

func toCeph(c v1beta1.VolumeCeph) backend.Ceph { return backend.Ceph(c) }

func fromCeph(c backend.Ceph) v1beta1.VolumeCeph { return v1beta1.VolumeCeph(c) }
