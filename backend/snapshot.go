package backend

import (
	"fmt"
	"slices"
	"time"
)

// SnapshotSpec asks for a point-in-time copy.
type SnapshotSpec struct {
	Name   string
	Source ID
}

// Snapshot is a copy that exists and is ready.
type Snapshot struct {
	ID      ID
	Name    string
	Node    string // the host that has it; empty when the backend is of one host
	Shared  bool   // a server has it, so that volumes are restored from it on no particular host
	Pool    string
	PoolID  string // of that pool; empty where pools have none
	Source  ID
	Group   ID    // empty unless made as part of a group
	Size    int64 // smallest size of a volume restored from it
	Mode    Mode
	FSType  string
	Used    int64 // bytes it keeps from being freed, at most
	Created time.Time

	Condition Condition
}

// Satisfies says whether an existing snapshot is what spec asks for.
func (s *Snapshot) Satisfies(spec SnapshotSpec) error {
	if s.Name != spec.Name || s.Source != spec.Source {
		return fmt.Errorf("%w: snapshot %s is named %s and was taken of volume %s, requested is name %s of volume %s; choose another name",
			ErrExists, s.ID, Quote(s.Name), s.Source, Quote(spec.Name), spec.Source)
	}
	return nil
}

// GroupSpec asks for copies of several volumes at one instant.
type GroupSpec struct {
	Name    string
	Sources []ID
}

// Members returns the sources in order, and an error when there are none or one is named twice.
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

// Member is the spec of the group's snapshot of one source.
func (g GroupSpec) Member(source ID) SnapshotSpec {
	return SnapshotSpec{Name: g.Name + "/" + string(source), Source: source}
}

// Group is a set of snapshots taken at one instant.
type Group struct {
	ID        ID
	Name      string
	Snapshots []*Snapshot // in the order of their sources' IDs
	Created   time.Time
}

// Spec is the request for the group.
func (g *Group) Spec() GroupSpec {
	spec := GroupSpec{Name: g.Name}
	for _, s := range g.Snapshots {
		spec.Sources = append(spec.Sources, s.Source)
	}
	return spec
}

// Satisfies says whether an existing group is what spec asks for.
func (g *Group) Satisfies(spec GroupSpec) error {
	have := g.Spec().Sources
	want := slices.Sorted(slices.Values(spec.Sources))
	if g.Name != spec.Name || !slices.Equal(have, want) {
		return fmt.Errorf("%w: group %s is named %s and holds volumes %v, requested is name %s of volumes %v; choose another name",
			ErrExists, g.ID, Quote(g.Name), have, Quote(spec.Name), want)
	}
	return nil
}
