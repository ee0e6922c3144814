package backend

import (
	"fmt"
	"slices"
	"time"
)

// SnapshotSpec specifies a snapshot.
type SnapshotSpec struct {
	Name   string
	Source ID
}

// Snapshot is an existing snapshot that is ready to use.
type Snapshot struct {
	ID      ID
	Name    string
	Node    string // empty for a backend of one host
	Shared  bool   // on a site: volumes restored from it are not bound to a node
	Pool    string
	PoolID  string // empty if pools have no IDs
	Source  ID
	Group   ID    // empty if the snapshot is not a member of a group
	Size    int64 // minimum size of a volume restored from it
	Mode    Mode
	FSType  string
	Used    int64 // bytes that its deletion frees, at most
	Created time.Time

	Condition Condition
}

// Satisfies returns nil if an existing snapshot meets spec.
func (s *Snapshot) Satisfies(spec SnapshotSpec) error {
	if s.Name != spec.Name || s.Source != spec.Source {
		return fmt.Errorf("%w: snapshot %s is named %s and was taken of volume %s, requested is name %s of volume %s; choose another name",
			ErrExists, s.ID, Quote(s.Name), s.Source, Quote(spec.Name), spec.Source)
	}
	return nil
}

// GroupSpec specifies consistent snapshots of several volumes.
type GroupSpec struct {
	Name    string
	Sources []ID
}

// Members returns the sources, sorted. It fails if there are none or one is named twice.
func (g GroupSpec) Members() ([]ID, error) {
	sources := slices.Sorted(slices.Values(g.Sources))
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w group %s: it names no volumes", ErrInvalid, Quote(g.Name))
	}
	if unique := slices.Compact(slices.Clone(sources)); len(unique) != len(sources) {
		return nil, fmt.Errorf("%w group %s: it names a volume twice: %v", ErrInvalid, Quote(g.Name), sources)
	}
	return sources, nil
}

// Member returns the spec of the group's snapshot of one source.
func (g GroupSpec) Member(source ID) SnapshotSpec {
	return SnapshotSpec{Name: g.Name + "/" + string(source), Source: source}
}

// Group is a set of snapshots that were taken at one instant.
type Group struct {
	ID        ID
	Name      string
	Snapshots []*Snapshot // sorted by the ID of their source
	Created   time.Time
}

// Spec returns the spec of the group.
func (g *Group) Spec() GroupSpec {
	spec := GroupSpec{Name: g.Name}
	for _, s := range g.Snapshots {
		spec.Sources = append(spec.Sources, s.Source)
	}
	return spec
}

// Satisfies returns nil if an existing group meets spec.
func (g *Group) Satisfies(spec GroupSpec) error {
	have := g.Spec().Sources
	want := slices.Sorted(slices.Values(spec.Sources))
	if g.Name != spec.Name || !slices.Equal(have, want) {
		return fmt.Errorf("%w: group %s is named %s and holds volumes %v, requested is name %s of volumes %v; choose another name",
			ErrExists, g.ID, Quote(g.Name), have, Quote(spec.Name), want)
	}
	return nil
}
