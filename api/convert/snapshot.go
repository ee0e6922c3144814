package convert

import (
	"cmp"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// ToSnapshotSpec converts a spec without node, group and deletion.
func ToSnapshotSpec(s *v1beta1.SnapshotSpec) backend.SnapshotSpec {
	return backend.SnapshotSpec{Name: s.Name, Source: backend.ID(s.SourceRef.Name)}
}

// FromSnapshotSpec returns the spec of a Snapshot on a node.
func FromSnapshotSpec(node string, s backend.SnapshotSpec, group *v1beta1.SnapshotGroup) v1beta1.SnapshotSpec {
	return v1beta1.SnapshotSpec{Name: s.Name, SourceRef: v1beta1.FromVolume(string(s.Source)), Node: node, Group: group}
}

// FoundSnapshot returns the spec of a Snapshot for a snapshot that was found on disk without an object.
func FoundSnapshot(node string, s *backend.Snapshot, group *v1beta1.SnapshotGroup) v1beta1.SnapshotSpec {
	const unknown = "unknown" // its metadata is damaged
	return FromSnapshotSpec(node, backend.SnapshotSpec{Name: cmp.Or(s.Name, string(s.ID)), Source: cmp.Or(s.Source, unknown)}, group)
}

func ToGroup(g *v1beta1.SnapshotGroup) backend.GroupSpec {
	spec := backend.GroupSpec{Name: g.Name}
	for _, s := range g.Volumes {
		spec.Sources = append(spec.Sources, backend.ID(s))
	}
	return spec
}

func FromGroup(g backend.GroupSpec) *v1beta1.SnapshotGroup {
	o := &v1beta1.SnapshotGroup{Name: g.Name}
	for _, s := range g.Sources {
		o.Volumes = append(o.Volumes, string(s))
	}
	return o
}

// ToSnapshot returns the snapshot that an object describes.
func ToSnapshot(o *v1beta1.Snapshot) *backend.Snapshot {
	return &backend.Snapshot{
		ID: backend.ID(o.Name), Name: o.Spec.Name, Node: o.Spec.Node, Shared: v1beta1.IsSite(o.Spec.Node), Pool: o.Status.Pool,
		PoolID: o.Status.PoolID, Source: backend.ID(o.Spec.SourceRef.Name), Group: backend.ID(o.Status.Group), Size: v1beta1.Bytes(o.Status.Size),
		Mode: backend.Mode(o.Status.Mode), FSType: o.Status.FSType, Used: v1beta1.Bytes(o.Status.Used), Created: toTime(o.Status.CreationTime),
		Condition: ToCondition(o.Status.Conditions),
	}
}

// ShowSnapshot writes a snapshot into the status of its object, without its condition. A damaged snapshot does not
// overwrite size, mode and file system.
func ShowSnapshot(s *v1beta1.SnapshotStatus, t *backend.Snapshot) {
	if t.Size > 0 {
		s.Size, s.Mode, s.FSType = v1beta1.Quantity(t.Size), v1beta1.Mode(t.Mode), t.FSType
	}
	s.Pool, s.PoolID, s.Used, s.Group = t.Pool, t.PoolID, v1beta1.Quantity(t.Used), string(t.Group)
	s.CreationTime = fromTime(s.CreationTime, t.Created)
}
