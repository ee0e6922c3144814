// Package convert converts between objects of the API and the types of backends.
package convert

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// ToSize converts the requested size.
func ToSize(s v1beta1.VolumeSize) backend.Size {
	return backend.Size{Required: v1beta1.Bytes(s.Required), Limit: v1beta1.Bytes(s.Limit)}
}

// FromSize leaves out zero values.
func FromSize(s backend.Size) (o v1beta1.VolumeSize) {
	if s.Required != 0 {
		o.Required = v1beta1.Quantity(s.Required)
	}
	if s.Limit != 0 {
		o.Limit = v1beta1.Quantity(s.Limit)
	}
	return o
}

// ToVolumeSpec converts a spec without source, node and deletion.
func ToVolumeSpec(s *v1beta1.VolumeSpec) backend.VolumeSpec {
	return backend.VolumeSpec{
		Name: s.Name, Pool: s.Pool, Size: ToSize(s.Size), Mode: backend.Mode(s.Mode), FSType: string(s.FSType),
		Provisioning: toLower[backend.Provisioning](s.Provisioning), MkfsOptions: s.MkfsOptions, Inodes: uint64(s.Inodes), Labels: s.Labels,
		OnNodeLoss: backend.OnNodeLoss(s.OnNodeLoss), Shared: s.Shared, Server: s.ServerRef.String(),
	}
}

// FromVolumeSpec returns the spec of a Volume on a node. It drops the candidates from which the node was chosen.
func FromVolumeSpec(node string, s backend.VolumeSpec, source *backend.Source) v1beta1.VolumeSpec {
	return v1beta1.VolumeSpec{
		Name: s.Name, ClaimRef: v1beta1.ReferenceTo(v1beta1.ClaimOf(s.Labels)), Node: node, Pool: s.Pool, Size: FromSize(s.Size), Mode: v1beta1.Mode(s.Mode),
		FSType: v1beta1.FSType(s.FSType), Provisioning: toCamel[v1beta1.Provisioning](s.Provisioning), MkfsOptions: s.MkfsOptions, Inodes: int64(s.Inodes),
		Labels: s.Labels, SourceRef: FromSource(source), OnNodeLoss: v1beta1.OnNodeLoss(s.OnNodeLoss), Shared: s.Shared, ServerRef: v1beta1.ReferenceTo(s.Server),
	}
}

// FoundVolume returns the spec of a Volume for a volume that was found on disk without an object.
func FoundVolume(node string, v *backend.Volume) v1beta1.VolumeSpec {
	fsType := v.FSType
	if fsType == v1beta1.CephFSType { // it is not made with the volume, so no class can name it
		fsType = ""
	}
	return FromVolumeSpec(node, backend.VolumeSpec{
		Name: cmp.Or(v.Name, string(v.ID)), Pool: v.Pool, Size: backend.Size{Required: v.Size}, Mode: v.Mode, FSType: fsType,
		Provisioning: v.Provisioning, MkfsOptions: v.MkfsOptions, Inodes: v.Inodes, Labels: v.Labels, OnNodeLoss: v.OnNodeLoss,
		Shared: v1beta1.ServerOf(node) != "",
	}, v.Source)
}

func ToSource(s *v1beta1.SourceReference) *backend.Source {
	if s == nil {
		return nil
	}
	return &backend.Source{Kind: toLower[backend.SourceKind](s.Kind), ID: backend.ID(s.Name)}
}

func FromSource(s *backend.Source) *v1beta1.SourceReference {
	if s == nil {
		return nil
	}
	return &v1beta1.SourceReference{Kind: toCamel[v1beta1.SourceKind](s.Kind), Name: string(s.ID)}
}

// ToVolume returns the volume that an object describes.
func ToVolume(o *v1beta1.Volume) *backend.Volume {
	v := &backend.Volume{
		ID: backend.ID(o.Name), Name: o.Spec.Name, Node: o.Spec.Node, Pool: o.Status.Pool, PoolID: o.Status.PoolID,
		Size: v1beta1.Bytes(o.Status.Size), Mode: backend.Mode(o.Status.Mode), FSType: o.Status.FSType, FSSize: v1beta1.Bytes(o.Status.FSSize),
		Provisioning: toLower[backend.Provisioning](o.Status.Provisioning), MkfsOptions: o.Spec.MkfsOptions, Inodes: uint64(o.Spec.Inodes),
		Labels: o.Spec.Labels, Shared: o.Spec.Shared, OnNodeLoss: backend.OnNodeLoss(o.Spec.OnNodeLoss), Source: ToSource(o.Status.SourceRef),
		Created: toTime(o.Status.CreationTime), Used: v1beta1.Bytes(o.Status.Used), Access: toAccess(o.Status.Access),
		Condition: ToCondition(o.Status.Conditions), Reach: reachOf(o),
	}
	if o.Spec.Shared {
		v.Server = v1beta1.ServerOf(o.Spec.Node)
	}
	return v
}

// reachOf derives the reach of a volume in a Ceph cluster from its file system, which is known even while the volume is out
// of reach.
func reachOf(o *v1beta1.Volume) backend.Reach {
	switch kind := v1beta1.SiteOf(o.Spec.Node).Kind; {
	case kind == v1beta1.SiteNFSServer, o.IsOfCephFS():
		return backend.ManyHosts
	case kind == v1beta1.SiteCephPool:
		return backend.OneHost
	}
	return backend.ItsHost
}

// ReachOf says which hosts can use the volumes that an engine makes.
func ReachOf(e v1beta1.Engine) backend.Reach {
	switch e {
	case v1beta1.EngineRBD:
		return backend.OneHost
	case v1beta1.EngineCephFS:
		return backend.ManyHosts
	}
	return backend.ItsHost
}

// ShowVolume writes a volume into the status of its object, without its condition. A damaged volume does not overwrite
// size, mode, file system and source. address is that of the NFS server, for exports that do not have one.
func ShowVolume(s *v1beta1.VolumeStatus, v *backend.Volume, address string) {
	if v.Size > 0 {
		s.Size, s.FSSize, s.Mode, s.FSType = v1beta1.Quantity(v.Size), v1beta1.Quantity(v.FSSize), v1beta1.Mode(v.Mode), v.FSType
		s.Provisioning, s.SourceRef = toCamel[v1beta1.Provisioning](v.Provisioning), FromSource(v.Source)
	}
	s.Pool, s.PoolID, s.Used = v.Pool, v.PoolID, v1beta1.Quantity(v.Used)
	s.Access, s.CreationTime = fromAccess(v.Access, address), fromTime(s.CreationTime, v.Created)
}

func toTime(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// fromTime keeps a known time, and always returns one: a creation time in the status means that the volume once
// existed.
func fromTime(known *metav1.MicroTime, created time.Time) *metav1.MicroTime {
	switch {
	case known != nil:
		return known
	case created.IsZero():
		created = time.Now()
	}
	return &metav1.MicroTime{Time: created.Truncate(time.Microsecond)}
}
