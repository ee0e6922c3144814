package local

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Snapshots and groups may have the same IDs as volumes, so their operations have keys of their own.
func snapshotKey(id backend.ID) backend.ID { return "snapshot/" + id }
func groupKey(id backend.ID) backend.ID    { return "group/" + id }

func (b *Backend) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return backend.Do(ctx, &b.ops, snapshotKey(id), "snapshot", func(ctx context.Context) (*backend.Snapshot, error) {
		if p, r := b.findSnapshot(id); r != nil {
			s := p.snapshot(r)
			if err := s.Satisfies(spec); err != nil {
				return nil, err
			}
			return s, nil
		}
		return backend.Do(ctx, &b.ops, spec.Source, "snapshot "+string(id), func(ctx context.Context) (*backend.Snapshot, error) {
			p, r := b.find(volumes, spec.Source)
			if r == nil {
				return nil, b.lacks("volume %s, the source of snapshot %s", spec.Source, id)
			}
			return p.takeSnapshot(ctx, id, spec, r)
		})
	})
}

func (p *pool) takeSnapshot(ctx context.Context, id backend.ID, spec backend.SnapshotSpec, r *record) (*backend.Snapshot, error) {
	t, err := p.beginPart(ctx, id, spec, r, nil)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if err := takeTogether(ctx, []*part{t}); err != nil {
		return nil, fmt.Errorf("snapshot %s of volume %s in pool %s: %w", id, r.id, p.Name, errors.Join(err, t.undo(ctx)))
	}
	return p.snapshot(t.made), nil
}

// part is a snapshot under construction, alone or as a member of a group.
type part struct {
	pool     *pool
	from     *engine.Entry
	building *building
	made     *record
}

func (p *pool) beginPart(ctx context.Context, id backend.ID, spec backend.SnapshotSpec, r *record, group *groupRef) (_ *part, err error) {
	t := &part{pool: p}
	if t.from, err = p.source(r); err != nil {
		return nil, err
	}
	defer func() {
		if t.building == nil {
			t.from.Dir.Close()
		}
	}()
	m, err := p.snapshotMeta(ctx, id, spec, t.from)
	if err != nil {
		return nil, err
	}
	m.Group = group
	if t.building, err = p.begin(ctx, snapshots, m); err != nil {
		return nil, err
	}
	return t, nil
}

// undo removes the snapshot of a part that failed, or whose group did.
func (t *part) undo(ctx context.Context) error {
	if t.made != nil {
		return t.pool.remove(ctx, t.made)
	}
	return t.building.abandon(ctx)
}

// close is deferred by the caller of beginPart.
func (t *part) close() {
	t.from.Dir.Close()
	t.building.guard()
}

// smallestSnapshot is the minimum charge of a snapshot. Its entry uses space even without data, and without a charge
// the number of snapshots would be unlimited.
const smallestSnapshot = backend.SizeUnit

// snapshotMeta plans a snapshot. It is charged with the space that its source uses now, since it cannot exceed that.
// Many small files are charged by their share of the pool's inodes.
func (p *pool) snapshotMeta(ctx context.Context, id backend.ID, spec backend.SnapshotSpec, from *engine.Entry) (*meta, error) {
	usage, err := p.measure(ctx)
	if err != nil {
		return nil, err
	}
	used, _ := p.engine.Inspect(from)
	inodes := p.engine.Inodes(from)
	content := *from.Content
	content.ReadOnly, content.Project = true, 0
	return &meta{
		ID: id, Name: spec.Name, Content: content,
		Charge: max(min(used, content.Size), inodeShare(usage, inodes), smallestSnapshot),
		copies: inodes,
		Source: &backend.Source{Kind: backend.SourceVolume, ID: spec.Source},
	}, nil
}

// inodeShare converts a number of files to bytes if the pool has a fixed number of inodes.
func inodeShare(usage nodeops.FSUsage, inodes int64) int64 {
	if usage.Inodes <= 0 {
		return 0
	}
	return inodes * (usage.Total / usage.Inodes)
}

// snapshot converts a record.
func (p *pool) snapshot(r *record) *backend.Snapshot { return p.showSnapshot(r, p.usable()) }

// showSnapshot converts a record of a pool that may have a problem.
func (p *pool) showSnapshot(r *record, problem error) *backend.Snapshot {
	_, condition, _ := p.inspect(r)
	if problem != nil {
		condition = backend.Condition{Abnormal: true, Message: problem.Error()}
	}
	s := &backend.Snapshot{ID: r.id, Pool: p.Name, PoolID: p.identity().ID, Used: r.charge, Condition: condition}
	if m := r.meta; m != nil {
		s.Name, s.Created, s.Size, s.Mode, s.FSType = m.Name, m.Created, m.Content.Size, m.Content.Mode, m.Content.FSType
		if m.Source != nil {
			s.Source = m.Source.ID
		}
		if m.Group != nil {
			s.Group = m.Group.ID
		}
	}
	return s
}

// findSnapshot returns a snapshot. A member of an incomplete group does not exist.
func (b *Backend) findSnapshot(id backend.ID) (*pool, *record) {
	p, r := b.find(snapshots, id)
	if r == nil || !b.whole(r) {
		return nil, nil
	}
	return p, r
}

func (b *Backend) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return backend.Run(ctx, &b.ops, snapshotKey(id), "delete snapshot", func(ctx context.Context) error {
		p, r := b.findSnapshot(id)
		if r == nil {
			return b.absent("snapshot %s", id)
		}
		if b.isMember(r) {
			return fmt.Errorf("%w: snapshot %s belongs to group %s; delete the group", backend.ErrPrecondition, id, r.meta.Group.ID)
		}
		return p.remove(ctx, r)
	})
}

// isMember says whether a snapshot belongs to a group that can be deleted. The record of the group is lost with its pool.
func (b *Backend) isMember(r *record) bool {
	if r.meta == nil || r.meta.Group == nil {
		return false
	}
	_, lost := homeIn(b.pools(), r.meta.Group)
	return !lost
}

func (b *Backend) GetSnapshot(_ context.Context, id backend.ID) (*backend.Snapshot, error) {
	p, r := b.findSnapshot(id)
	if r == nil {
		return nil, b.notFound("snapshot %s", id)
	}
	return p.snapshot(r), nil
}

func (b *Backend) ListSnapshots(context.Context) ([]*backend.Snapshot, error) {
	return listed(b, snapshots, (*pool).showSnapshot, func(s *backend.Snapshot) backend.ID { return s.ID }), nil
}

// takeTogether copies several entries, each to its building, at one common instant, and commits them.
func takeTogether(ctx context.Context, parts []*part) (err error) {
	var ids []string
	do := func(ctx context.Context) error {
		crashpoint.Here(crashpoint.CopyFrozen)
		for _, part := range parts {
			if err := part.pool.engine.Copy(ctx, part.building.entry, part.from); err != nil {
				return err
			}
		}
		crashpoint.Here(crashpoint.CopyDone)
		return nil
	}
	for _, part := range parts {
		ids = append(ids, string(part.from.ID))
	}
	group := ""
	if len(parts) > 1 {
		group = strings.Join(ids, ", ")
	}
	for _, part := range parts {
		rest := do
		do = func(ctx context.Context) error { return part.pool.engine.Frozen(ctx, part.from, group, rest) }
	}
	if err := do(ctx); err != nil {
		return err
	}
	for _, part := range parts {
		if part.made, err = part.building.commit(ctx, true); err != nil {
			return err
		}
	}
	return nil
}
