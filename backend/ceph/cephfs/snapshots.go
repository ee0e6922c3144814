//go:build ceph

package cephfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ceph/go-ceph/cephfs/admin"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// Snapshots have names of their own, which may equal those of volumes: their operations use other keys.
func snapshotKey(id backend.ID) backend.ID { return "snapshot/" + id }

// smallestSnapshot is what any snapshot is charged with: their number would have no bound.
const smallestSnapshot = backend.SizeUnit

// whole says that users see the snapshot.
func (s *snapshotEntry) whole() bool { return s.meta == nil || s.meta.State == ready }

// findSnapshot looks a snapshot up in all subvolumes; nil where there is none.
func (p *pool) findSnapshot(ctx context.Context, id backend.ID) (e *entry, s *snapshotEntry, err error) {
	e, err = look(ctx, p, "looking for snapshot "+string(id), func(g *group) (*entry, error) {
		all, _, err := g.entries()
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if s := e.snapshot(id); s != nil && s.whole() {
				return e, nil
			}
		}
		return nil, nil
	})
	if err != nil || e == nil {
		return nil, nil, err
	}
	return e, e.snapshot(id), nil
}

func (b *Backend) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, snapshotKey(id), "snapshot", func(ctx context.Context) (*backend.Snapshot, error) {
		e, s, err := p.findSnapshot(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case s != nil:
			return p.thatSatisfies(ctx, e, s, spec)
		}
		if _, err := p.snapshotSource(ctx, id, spec); err != nil {
			return nil, err // as in createFrom
		}
		return do(ctx, b, spec.Source, "snapshot "+string(id), func(ctx context.Context) (*backend.Snapshot, error) { return p.snapshotOf(ctx, id, spec) })
	})
}

// thatSatisfies returns a snapshot that is there, unless it is not the one that was requested.
func (p *pool) thatSatisfies(ctx context.Context, e *entry, s *snapshotEntry, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	there, err := p.snapshot(ctx, e, s)
	if err != nil {
		return nil, err
	}
	return there, there.Satisfies(spec)
}

// snapshotSource finds the volume of which a snapshot is to be taken.
func (p *pool) snapshotSource(ctx context.Context, id backend.ID, spec backend.SnapshotSpec) (*entry, error) {
	e, err := p.find(ctx, spec.Source)
	switch {
	case err != nil:
		return nil, err
	case e == nil || e.copies():
		return nil, fmt.Errorf("%w: volume %s, the source of snapshot %s", backend.ErrNotFound, spec.Source, id)
	case e.volume == nil:
		return nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, e.damage)
	case e.volume.Incomplete:
		return nil, backend.LacksContent(e.id)
	}
	return e, nil
}

// snapshotOf records what it is going to take, takes it, and records last that it is there.
func (p *pool) snapshotOf(ctx context.Context, id backend.ID, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	e, err := p.snapshotSource(ctx, id, spec)
	if err != nil {
		return nil, err
	}
	if err := p.clearSnapshots(ctx, id); err != nil {
		return nil, fmt.Errorf("removing the remains of an earlier attempt: %w", err)
	}
	switch e, s, err := p.findSnapshot(ctx, id); {
	case err != nil:
		return nil, err
	case s != nil: // an earlier attempt had all but its record
		return p.thatSatisfies(ctx, e, s, spec)
	}
	if err := p.refuseTaken(ctx, e.name, string(id)); err != nil {
		return nil, err
	}
	f, err := look(ctx, p, "measuring volume "+string(e.id), func(g *group) (facts, error) { return g.facts(e.volume.Path) })
	if err != nil {
		return nil, err
	}
	m := &snapshotMeta{
		Version: version, ID: id, Name: spec.Name, Source: spec.Source, Created: time.Now().UTC(), State: building, Size: e.volume.Size,
		Charge: max(min(f.bytes, e.volume.Size), smallestSnapshot),
	}
	if err := p.promiseSnapshot(ctx, e.name, m); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.BuildBegun)
	err = p.takeSnapshot(ctx, e.name, string(id))
	if err == nil {
		crashpoint.Here(crashpoint.BuildFilled)
		m.State = ready
		err = p.recordSnapshot(ctx, e.name, m)
	}
	if err != nil {
		return nil, errors.Join(err, p.destroySnapshot(ctx, e.name, id))
	}
	crashpoint.Here(crashpoint.BuildCommitted)
	return p.snapshot(ctx, e, &snapshotEntry{id: id, meta: m})
}

func (p *pool) promiseSnapshot(ctx context.Context, name string, m *snapshotMeta) error {
	return p.promise(ctx, m.ID, m.Charge, func() error { return p.recordSnapshot(ctx, name, m) })
}

func (p *pool) recordSnapshot(ctx context.Context, name string, m *snapshotMeta) error {
	written := *m
	return p.touch(ctx, "recording snapshot "+string(m.ID), func(g *group) error { return g.set(g.base(name), snapshotsAttr+string(m.ID), written) })
}

// clearSnapshots removes what killed attempts have left under an ID, in whatever subvolume. No operation on it runs.
func (p *pool) clearSnapshots(ctx context.Context, id backend.ID) error {
	all, err := look(ctx, p, "looking for earlier attempts", func(g *group) ([]*entry, error) {
		all, _, err := g.entries()
		return all, err
	})
	if err != nil {
		return err
	}
	for _, e := range all {
		if s := e.snapshot(id); s != nil && !s.whole() {
			if err := p.finishSnapshot(ctx, e.name, s.meta); err != nil {
				return err
			}
		}
	}
	return nil
}

// finishSnapshot records that a snapshot is there that was being taken: it is whole when it exists, and the record may be
// older. Otherwise it removes what there is of it.
func (p *pool) finishSnapshot(ctx context.Context, name string, m *snapshotMeta) error {
	there, err := look(ctx, p, "looking for snapshot "+string(m.ID), func(g *group) (bool, error) { return g.exists(g.snapshotPath(name, string(m.ID))) })
	switch {
	case err != nil:
		return err
	case m.State == building && there:
		taken := *m
		taken.State = ready
		return p.recordSnapshot(ctx, name, &taken)
	}
	return p.destroySnapshot(ctx, name, m.ID)
}

// refuseTaken refuses a name that a snapshot has which is not of Holdfast. It is asked before the name is recorded: what is
// recorded may be removed.
func (p *pool) refuseTaken(ctx context.Context, name, snapshot string) error {
	taken, err := look(ctx, p, "looking for snapshot "+snapshot, func(g *group) (bool, error) { return g.exists(g.snapshotPath(name, snapshot)) })
	if err == nil && taken {
		err = fmt.Errorf("%w: subvolume %s has a snapshot %s, which Holdfast has not taken; choose another name", backend.ErrExists, name, snapshot)
	}
	return err
}

// takeSnapshot has the manager take a snapshot.
func (p *pool) takeSnapshot(ctx context.Context, name, snapshot string) error {
	return p.manage(ctx, fmt.Sprintf("taking snapshot %s of subvolume %s", snapshot, name), func(a *admin.FSAdmin) error {
		return a.CreateSubVolumeSnapshot(p.in.FileSystem, p.Group, name, snapshot)
	})
}

// dropSnapshot removes a snapshot; what is gone already is no error.
func (p *pool) dropSnapshot(ctx context.Context, name, snapshot string) error {
	err := p.manage(ctx, fmt.Sprintf("removing snapshot %s of subvolume %s", snapshot, name), func(a *admin.FSAdmin) error {
		return a.ForceRemoveSubVolumeSnapshot(p.in.FileSystem, p.Group, name, snapshot)
	})
	if gone(err) || hasErrno(err, syscall.ESTALE) { // with its last snapshot a removed subvolume goes too
		return nil
	}
	return err
}

// destroySnapshot removes a snapshot and its record.
func (p *pool) destroySnapshot(ctx context.Context, name string, id backend.ID) error {
	if err := p.dropSnapshot(ctx, name, string(id)); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	return p.touch(ctx, "removing the record of snapshot "+string(id), func(g *group) error { return g.unset(g.base(name), snapshotsAttr+string(id)) })
}

// snapshot shows a snapshot as callers know it.
func (p *pool) snapshot(ctx context.Context, e *entry, s *snapshotEntry) (*backend.Snapshot, error) {
	shown := &backend.Snapshot{ID: s.id, Pool: p.Name, PoolID: p.id, Mode: backend.Filesystem, FSType: fsType}
	if s.meta == nil {
		shown.Condition = backend.Abnormal("%v", s.damage)
		return shown, nil
	}
	shown.Name, shown.Source, shown.Created, shown.Size, shown.Used = s.meta.Name, s.meta.Source, s.meta.Created, s.meta.Size, s.meta.Charge
	there, err := look(ctx, p, "looking at snapshot "+string(s.id), func(g *group) (bool, error) { return g.exists(g.snapshotPath(e.name, string(s.id))) })
	if err == nil && !there {
		shown.Condition = backend.Abnormal("snapshot %s of subvolume %s is gone; delete it here too", s.id, e.name)
	}
	return shown, err
}

func (b *Backend) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	e, s, err := p.findSnapshot(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, fmt.Errorf("%w: snapshot %s in pool %s", backend.ErrNotFound, id, p.Name)
	}
	return p.snapshot(ctx, e, s)
}

func (b *Backend) ListSnapshots(ctx context.Context) (list []*backend.Snapshot, err error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	all, err := p.entries(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		for _, s := range e.snapshots {
			if !s.whole() {
				continue
			}
			shown, err := p.snapshot(ctx, e, s)
			if err != nil {
				return nil, err
			}
			list = append(list, shown)
		}
	}
	slices.SortFunc(list, func(x, y *backend.Snapshot) int { return cmp.Compare(x.ID, y.ID) })
	return list, nil
}

func (b *Backend) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	p, err := b.use(ctx)
	if err != nil {
		return err
	}
	_, err = do(ctx, b, snapshotKey(id), "delete snapshot", func(ctx context.Context) (any, error) { return nil, p.removeSnapshot(ctx, id) })
	return err
}

// removeSnapshot records first that the snapshot is gone, so that no copy has half of it. One that is still copied is
// removed when that is done.
func (p *pool) removeSnapshot(ctx context.Context, id backend.ID) error {
	e, s, err := p.findSnapshot(ctx, id)
	switch {
	case err != nil || s == nil:
		return err
	case errors.Is(s.damage, errNewer):
		return fmt.Errorf("%w: %w; delete it with the newer program", backend.ErrPrecondition, s.damage)
	case s.damage != nil:
		return fmt.Errorf("%w: %w; remove it with ceph fs subvolume snapshot rm %s %s %s --group_name %s, and its attribute", backend.ErrPrecondition, s.damage, p.in.FileSystem, e.name, id, p.Group)
	}
	m := *s.meta
	m.State = removing
	if err := p.recordSnapshot(ctx, e.name, &m); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DeleteTrashed)
	if err := p.destroySnapshot(ctx, e.name, id); err != nil {
		p.log.Warn("deleted, but its space is not free yet; retrying", "snapshot", id, "error", err)
	}
	return nil
}
