package agent

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func bytesOf(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

func quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }

func sizeOf(s v1.VolumeSize) backend.Size {
	return backend.Size{Required: bytesOf(s.Required), Limit: bytesOf(s.Limit)}
}

// volumeSpec leaves out what chose the node: that a volume is shared, and by which server.
func volumeSpec(o *v1.Volume) backend.VolumeSpec {
	return backend.VolumeSpec{
		Name: o.Spec.Name, Pool: o.Spec.Pool, Size: sizeOf(o.Spec.Size), Mode: backend.Mode(o.Spec.Mode), FSType: string(o.Spec.FSType),
		Provisioning: backend.Provisioning(o.Spec.Provisioning), MkfsOptions: o.Spec.MkfsOptions, Inodes: uint64(o.Spec.Inodes), Labels: o.Spec.Labels,
		OnNodeLoss: backend.OnNodeLoss(o.Spec.OnNodeLoss),
	}
}

func sourceOf(s *v1.VolumeSource) *backend.Source {
	if s == nil {
		return nil
	}
	return &backend.Source{Kind: backend.SourceKind(s.Kind), ID: backend.ID(s.Name)}
}

func sourceObject(s *backend.Source) *v1.VolumeSource {
	if s == nil {
		return nil
	}
	return &v1.VolumeSource{Kind: v1.SourceKind(s.Kind), Name: string(s.ID)}
}

func groupSpec(g *v1.SnapshotGroup) backend.GroupSpec {
	spec := backend.GroupSpec{Name: g.Name}
	for _, s := range g.Sources {
		spec.Sources = append(spec.Sources, backend.ID(s))
	}
	return spec
}

// accessObject is nil where there is no access. What a server exports is reached at the server's address, which it does
// not know itself.
func accessObject(a backend.Access, address string) *v1.VolumeAccess {
	if a == (backend.Access{}) {
		return nil
	}
	o := &v1.VolumeAccess{Image: a.Image, Directory: a.Directory}
	if a.NFS != nil {
		if address = cmp.Or(a.NFS.Server, address); address == "" {
			return nil
		}
		o.NFS = &v1.VolumeNFS{Server: address, Path: a.NFS.Path}
	}
	return o
}
