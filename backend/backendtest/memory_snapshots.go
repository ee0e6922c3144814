package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

func (m *Memory) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return locked(ctx, m, "snapshot/"+id, "snapshot", func() (*backend.Snapshot, error) { return m.snapshot(id, spec, "") })
}

func (m *Memory) snapshot(id backend.ID, spec backend.SnapshotSpec, group backend.ID) (*backend.Snapshot, error) {
	if s := m.snapshots[id]; s != nil {
		return clone(&s.Snapshot), s.Satisfies(spec)
	}
	v, err := m.whole(spec.Source)
	if err != nil {
		return nil, err
	}
	s := &memorySnapshot{content: bytes.Clone(v.content), Snapshot: backend.Snapshot{
		ID: id, Name: spec.Name, Pool: v.Pool, Source: v.ID, Group: group,
		Size: v.Size, Mode: v.Mode, FSType: v.FSType, Created: time.Now(), Shared: v.Shared,
	}}
	m.snapshots[id] = s
	return clone(&s.Snapshot), nil
}

func (m *Memory) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	_, err := locked(ctx, m, "snapshot/"+id, "delete snapshot", func() (any, error) {
		if s := m.snapshots[id]; s != nil && s.Group != "" {
			return nil, fmt.Errorf("%w: snapshot %s belongs to group %s; delete the group", backend.ErrPrecondition, id, s.Group)
		}
		delete(m.snapshots, id)
		return nil, nil
	})
	return err
}

func (m *Memory) GetSnapshot(_ context.Context, id backend.ID) (*backend.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := found(m.snapshots, "snapshot", id)
	if err != nil {
		return nil, err
	}
	return clone(&s.Snapshot), nil
}

func (m *Memory) ListSnapshots(context.Context) ([]*backend.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*backend.Snapshot
	for _, id := range slices.Sorted(maps.Keys(m.snapshots)) {
		all = append(all, clone(&m.snapshots[id].Snapshot))
	}
	return all, nil
}

func (m *Memory) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	sources, err := spec.Members()
	if err != nil {
		return nil, err
	}
	return locked(ctx, m, "group/"+id, "group snapshot", func() (*backend.Group, error) {
		if g := m.groups[id]; g != nil {
			return g, g.Satisfies(spec)
		}
		for _, source := range sources {
			if _, err := found(m.volumes, "volume", source); err != nil {
				return nil, err
			}
		}
		g := &backend.Group{ID: id, Name: spec.Name, Created: time.Now()}
		for _, source := range sources {
			member := spec.Member(source)
			memberID, err := backend.IDFor(member.Name)
			if err != nil {
				return nil, err
			}
			s, err := m.snapshot(memberID, member, id)
			if err != nil {
				return nil, err
			}
			g.Snapshots = append(g.Snapshots, s)
		}
		m.groups[id] = g
		return g, nil
	})
}

func (m *Memory) DeleteGroup(ctx context.Context, id backend.ID) error {
	_, err := locked(ctx, m, "group/"+id, "delete group", func() (any, error) {
		delete(m.groups, id)
		maps.DeleteFunc(m.snapshots, func(_ backend.ID, s *memorySnapshot) bool { return s.Group == id })
		return nil, nil
	})
	return err
}

func (m *Memory) GetGroup(_ context.Context, id backend.ID) (*backend.Group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, err := found(m.groups, "group", id)
	if err != nil {
		return nil, err
	}
	return clone(g), nil
}
