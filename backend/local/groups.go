package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// The record of a group is written last, in the pool of its first member. Members without it are invisible to callers,
// and removed at the next start or attempt.

func (b *Backend) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	sources, err := spec.Members()
	if err != nil {
		return nil, err
	}
	return backend.Do(ctx, &b.ops, groupKey(id), "group snapshot", func(ctx context.Context) (*backend.Group, error) {
		if p, r := b.find(groups, id); r != nil {
			g, err := b.group(p, r)
			if err != nil {
				return nil, err
			}
			if err := g.Satisfies(spec); err != nil {
				return nil, err
			}
			return g, nil
		}
		for _, source := range sources {
			if _, r := b.find(volumes, source); r == nil { // a clone that is to become it may wait for another source
				return nil, b.lacks("volume %s, a source of group %s", source, id)
			}
		}
		return holding(ctx, &b.ops, sources, "group snapshot "+string(id), func(ctx context.Context) (*backend.Group, error) {
			return b.takeGroup(ctx, id, spec, sources)
		})
	})
}

// holding runs f while no other operation runs on any of ids. They are sorted, so that two groups cannot deadlock.
func holding[T any](ctx context.Context, ops *backend.Operations, ids []backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	if len(ids) == 0 {
		return f(ctx)
	}
	return backend.Do(ctx, ops, ids[0], verb, func(ctx context.Context) (T, error) {
		return holding(ctx, ops, ids[1:], verb, f)
	})
}

func (b *Backend) takeGroup(ctx context.Context, id backend.ID, spec backend.GroupSpec, sources []backend.ID) (_ *backend.Group, err error) {
	var parts []*part
	defer func() {
		for _, part := range parts {
			part.close()
		}
	}()
	defer func() {
		if err == nil {
			return
		}
		for _, part := range parts {
			err = errors.Join(err, part.undo(ctx))
		}
	}()
	home, r := b.find(volumes, sources[0])
	if r == nil {
		return nil, b.lacks("volume %s, a source of group %s", sources[0], id)
	}
	m, ref := &meta{ID: id, Name: spec.Name}, &groupRef{ID: id, Pool: home.Name, PoolID: home.identity().ID}
	for _, source := range sources {
		part, err := b.beginMember(ctx, spec.Member(source), ref)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		m.Members = append(m.Members, member{Pool: part.pool.Name, Snapshot: part.building.record.id, Source: source})
	}
	if err := takeTogether(ctx, parts); err != nil {
		return nil, fmt.Errorf("group %s: %w", id, err)
	}
	crashpoint.Here(crashpoint.GroupBuilt)
	record, err := home.begin(ctx, groups, m)
	if err != nil {
		return nil, err
	}
	made, err := record.fillAndCommit(ctx, false, func(context.Context, *engine.Entry) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", id, err)
	}
	return b.group(home, made)
}

func (b *Backend) beginMember(ctx context.Context, spec backend.SnapshotSpec, group *groupRef) (*part, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	p, r := b.find(volumes, spec.Source)
	if r == nil {
		return nil, b.lacks("volume %s, a source of group %s", spec.Source, group.ID)
	}
	if owner, left := b.find(snapshots, id); left != nil {
		if left.meta == nil || left.meta.Group == nil || left.meta.Group.ID != group.ID {
			return nil, fmt.Errorf("%w: snapshot %s is not of group %s", backend.ErrExists, id, group.ID)
		}
		if err := owner.remove(ctx, left); err != nil {
			return nil, err
		}
	}
	return p.beginPart(ctx, id, spec, r, group)
}

// whole returns whether an entry is visible: a member of a group without a record is not. If the group's pool is not
// open, that is unknown, and the member is visible.
func (b *Backend) whole(r *record) bool { return wholeIn(b.pools(), r) }

func wholeIn(pools []*pool, r *record) bool {
	if r.kind != snapshots || r.meta == nil || r.meta.Group == nil {
		return true
	}
	home, _ := homeIn(pools, r.meta.Group)
	return home == nil || home.find(groups, r.meta.Group.ID) != nil
}

// homeIn returns the pool that has the record of a group, or nil. replaced means that another pool has its name.
func homeIn(pools []*pool, ref *groupRef) (home *pool, replaced bool) {
	i := slices.IndexFunc(pools, func(p *pool) bool { return p.Name == ref.Pool })
	switch {
	case i < 0:
		return nil, false
	case ref.PoolID == "" || ref.PoolID == pools[i].identity().ID:
		return pools[i], false
	}
	return nil, true
}

// sweepGroups removes members of groups that are incomplete or deleted, before a pool is used: those in it, and those in other
// pools of a group whose record would be in it. Without its ID, another pool is not known to be that of the group.
func (b *Backend) sweepGroups(ctx context.Context, p *pool) {
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	known := b.pools()
	if !slices.Contains(known, p) {
		known = append(known, p)
	}
	for _, owner := range known {
		for _, r := range owner.each(snapshots) {
			if wholeIn(known, r) || (owner != p || r.meta.Group.PoolID == "") && r.meta.Group.Pool != p.Name {
				continue
			}
			if err := backend.Run(ctx, &b.ops, snapshotKey(r.id), "remove", func(ctx context.Context) error { return owner.remove(ctx, r) }); err != nil {
				owner.log.Warn("a snapshot of an incomplete group stays", "snapshot", r.id, "error", err)
			}
		}
	}
}

func (b *Backend) group(p *pool, r *record) (*backend.Group, error) {
	if r.damage != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrPrecondition, r.damage)
	}
	g := &backend.Group{ID: r.id, Name: r.meta.Name, Created: r.meta.Created}
	for _, m := range r.meta.Members {
		owner, err := b.pool(m.Pool, backend.ErrUnavailable)
		if err != nil {
			return nil, fmt.Errorf("group %s of pool %s: %w", r.id, p.Name, err)
		}
		s := owner.find(snapshots, m.Snapshot)
		if s == nil {
			return nil, fmt.Errorf("%w: group %s lost its snapshot %s", backend.ErrPrecondition, r.id, m.Snapshot)
		}
		g.Snapshots = append(g.Snapshots, owner.snapshot(s))
	}
	return g, nil
}

func (b *Backend) GetGroup(_ context.Context, id backend.ID) (*backend.Group, error) {
	p, r := b.find(groups, id)
	if r == nil {
		return nil, b.notFound("group %s", id)
	}
	return b.group(p, r)
}

// DeleteGroup removes the record first. From then on the group does not exist, and its members are removed now, by a repeat of
// the call, or at the next start.
func (b *Backend) DeleteGroup(ctx context.Context, id backend.ID) error {
	return backend.Run(ctx, &b.ops, groupKey(id), "delete group", func(ctx context.Context) error {
		p, r := b.find(groups, id)
		if r == nil {
			return errors.Join(b.removeMembers(ctx, id), b.absent("group %s", id))
		}
		if err := p.remove(ctx, r); err != nil {
			return err
		}
		return b.removeMembers(ctx, id)
	})
}

// removeMembers removes the snapshots of a group that has no record.
func (b *Backend) removeMembers(ctx context.Context, id backend.ID) error {
	var errs []error
	for _, p := range b.pools() {
		for _, r := range p.each(snapshots) {
			if r.meta != nil && r.meta.Group != nil && r.meta.Group.ID == id && !b.whole(r) {
				errs = append(errs, p.remove(ctx, r))
			}
		}
	}
	return errors.Join(errs...)
}
