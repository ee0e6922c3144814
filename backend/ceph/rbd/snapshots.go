//go:build ceph

package rbd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
)

func (b *Backend) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, snapshotKey(id), "snapshot", func(ctx context.Context) (*backend.Snapshot, error) {
		r, err := b.clear(ctx, imageName(snapshots, id))
		if err := cmp.Or(err, r.check()); err != nil {
			return nil, err
		}
		if r != nil {
			s := b.snapshot(r)
			return s, s.Satisfies(spec)
		}
		of := ", the source of snapshot " + string(id)
		if _, err := b.need(ctx, volumes, spec.Source, of); err != nil {
			return nil, err // as in create
		}
		return do(ctx, b, spec.Source, "snapshot "+string(id), func(ctx context.Context) (*backend.Snapshot, error) {
			from, err := b.need(ctx, volumes, spec.Source, of)
			if err != nil {
				return nil, err
			}
			m := snapshotMeta(id, spec, from)
			made, err := b.make(ctx, m, from, func(s *session) error {
				if err := s.copy(m.imageName(), from); err != nil {
					return err
				}
				return s.fix(m.imageName())
			})
			if err != nil {
				return nil, err
			}
			return b.snapshot(made), nil
		})
	})
}

func snapshotMeta(id backend.ID, spec backend.SnapshotSpec, from *record) *meta {
	m := *from.meta
	m.Version, m.Kind, m.ID, m.Name, m.Created = version, snapshots, id, spec.Name, time.Now().UTC()
	m.Source = &backend.Source{Kind: backend.SourceVolume, ID: spec.Source}
	m.Labels, m.OnNodeLoss, m.Ephemeral, m.Incomplete = nil, "", false, false
	return &m
}

// fix makes the content of a snapshot's image that of which copies are made.
func (s *session) fix(name string) error {
	return s.with(name, func(image *rbd.Image) error { return snap(image, contentSnapshot) })
}

// snapshot shows a record as callers know it.
func (b *Backend) snapshot(r *record) *backend.Snapshot {
	s := &backend.Snapshot{ID: r.id, Pool: b.Name}
	if r.meta == nil {
		s.Condition = backend.Abnormal("%v", r.damaged())
		return s
	}
	m := r.meta
	s.Name, s.Source, s.Size, s.Mode, s.FSType, s.Created = m.Name, m.Source.ID, m.Size, m.Mode, m.FSType, m.Created
	s.Used = m.Size
	return s
}

// findSnapshot looks a snapshot up.
func (b *Backend) findSnapshot(ctx context.Context, id backend.ID) (*record, error) {
	if !valid(id) {
		return nil, nil
	}
	return b.find(ctx, snapshots, id)
}

func (b *Backend) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	r, err := b.findSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("%w: snapshot %s in pool %s", backend.ErrNotFound, backend.Quote(string(id)), b.Name)
	}
	return b.snapshot(r), nil
}

func (b *Backend) ListSnapshots(ctx context.Context) ([]*backend.Snapshot, error) {
	all, err := call(ctx, b, "listing snapshots", func(s *session) (found []*backend.Snapshot, err error) {
		entries, err := s.ledger.all()
		if err != nil {
			return nil, err
		}
		all, err := s.list(snapshots, entries, func(*record) {})
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			found = append(found, b.snapshot(r))
		}
		return found, nil
	})
	return all, err
}

func (b *Backend) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	_, err := do(ctx, b, snapshotKey(id), "delete snapshot", func(ctx context.Context) (any, error) {
		r, err := b.findSnapshot(ctx, id)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, b.clearRemains(ctx, snapshots, id)
		}
		return nil, b.remove(ctx, r)
	})
	return err
}
