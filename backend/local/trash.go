package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// remove removes an entry in two steps, so that after a crash it is either where it was or in the trash. With a
// retention time, a volume then stays in the trash.
func (p *pool) remove(ctx context.Context, r *record) error {
	if errors.Is(r.damage, errNewer) {
		return fmt.Errorf("%w: %w; delete it with the newer program", backend.ErrPrecondition, r.damage)
	}
	if err := p.usable(); err != nil {
		return err
	}
	if err := p.unused(r); err != nil {
		return err
	}
	now := time.Now()
	gone := &record{kind: r.kind, id: r.id, place: path.Join(trashDir, timedName(r.kind, r.id, now)), meta: r.meta, damage: r.damage, charge: r.charge, deleted: now}
	if !p.expired(gone, now) {
		gone.freeable = p.measureFreeableOf(r)
	}
	if err := p.root.Rename(r.place, gone.place); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.entries[r.kind], r.id)
	p.trash[gone.place] = gone
	p.mu.Unlock()
	if err := errors.Join(nodeops.SyncDir(p.root, string(r.kind)), nodeops.SyncDir(p.root, trashDir)); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DeleteTrashed)
	if p.expired(gone, now) {
		p.purge(ctx, gone)
	}
	return nil
}

func (p *pool) unused(r *record) error {
	if r.kind == groups {
		return nil
	}
	dir, err := p.root.OpenRoot(r.place) // what is damaged may be in use all the same
	switch {
	case err != nil && r.damage != nil:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %s of pool %s: %w", backend.ErrPrecondition, r.place, p.Name, err)
	}
	defer dir.Close()
	by, err := p.engine.InUse(&engine.Entry{ID: r.id, Dir: dir})
	if err != nil {
		return err
	}
	if by != "" {
		return fmt.Errorf("%w: %s %s is in use on this host (%s); delete the pods that use it first", backend.ErrInUse, r.kind, r.id, by)
	}
	return nil
}

func (p *pool) expired(r *record, now time.Time) bool {
	ephemeral := r.meta != nil && r.meta.Ephemeral
	if r.kind != volumes || ephemeral || p.TrashRetention == backend.NoTrash {
		return true
	}
	return p.sightings.Ripe(r.place, r.deleted, now, p.TrashRetention)
}

// claim reserves an entry of the trash for one caller, who removes or restores it. Its space stays promised until then.
// It returns nil if another caller has it.
func (p *pool) claim(r *record) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimLocked(r)
}

// claimLocked is claim with p.mu held.
func (p *pool) claimLocked(r *record) *record {
	if p.trash[r.place] == nil {
		return nil
	}
	claimed := *r
	claimed.place = path.Join(buildingDir, path.Base(r.place))
	p.building[claimed.place] = &claimed
	delete(p.trash, r.place)
	p.sightings.Forget(r.place)
	return &claimed
}

// purge removes an entry from the trash, unless another caller has claimed it.
func (p *pool) purge(ctx context.Context, r *record) {
	if claimed := p.claim(r); claimed != nil {
		p.purgeClaimed(ctx, claimed)
	}
}

// purgeClaimed first moves an entry out of the trash on disk, so that a partly removed one is never restored. If it
// cannot be removed now, it becomes a leftover.
func (p *pool) purgeClaimed(ctx context.Context, r *record) {
	err := p.root.Rename(path.Join(trashDir, path.Base(r.place)), r.place)
	restored := errors.Is(err, fs.ErrNotExist) // by another process
	if err == nil || restored {
		crashpoint.Here(crashpoint.TrashTaken)
		err = p.discardSoon(ctx, r)
	}
	if err != nil {
		p.log.Warn("deleted, but its space is not free yet", "kind", r.kind, "id", r.id, "error", err)
		p.keepLeftover(r, err, firstWait)
		return
	}
	if restored {
		p.find(r.kind, r.id)
	}
	p.forget(r)
}

// emptyTrash removes expired entries, and those whose removal failed before.
func (p *pool) emptyTrash(ctx context.Context, now time.Time) {
	p.mu.Lock()
	var expired []*record
	for _, r := range p.trash {
		if p.expired(r, now) {
			expired = append(expired, r)
		}
	}
	p.mu.Unlock()
	for _, r := range expired {
		if ctx.Err() != nil {
			return // they stay until the next time
		}
		p.purge(ctx, r)
	}
}

// Trash lists deleted volumes that can be restored, the last deleted first.
func (b *Backend) Trash(context.Context) ([]backend.Trashed, error) {
	var all []backend.Trashed
	for _, p := range b.pools() {
		if err := p.scan(); err != nil {
			return nil, fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err)
		}
		for _, r := range p.trashed() {
			t := backend.Trashed{ID: r.id, Pool: p.Name, Deleted: r.deleted, Expires: r.deleted.Add(max(0, p.TrashRetention))}
			if r.meta != nil {
				t.Name, t.Size, t.Labels, t.Incomplete = r.meta.Name, r.meta.Content.Size, r.meta.Labels, r.meta.Incomplete
			}
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y backend.Trashed) int { return y.Deleted.Compare(x.Deleted) })
	return all, nil
}

// trashed returns the deleted volumes, the last deleted first.
func (p *pool) trashed() []*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*record
	for _, r := range p.trash {
		if r.kind == volumes {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *record) int { return cmp.Compare(y.deleted.UnixNano(), x.deleted.UnixNano()) })
	return all
}

// Undelete restores the last deleted volume of that ID from the trash. Its space has stayed promised.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "undelete", func(context.Context) (*backend.Volume, error) {
		if p, r := b.find(volumes, id); r != nil {
			return nil, fmt.Errorf("%w: volume %s exists in pool %s", backend.ErrExists, id, p.Name)
		}
		var from *pool
		var last *record
		for _, p := range b.pools() {
			for _, r := range p.trashed() {
				if r.id == id && (last == nil || r.deleted.After(last.deleted)) {
					from, last = p, r
				}
			}
		}
		if last == nil {
			return nil, b.notFound("volume %s is not in the trash", id)
		}
		return from.undelete(last)
	})
}

func (p *pool) undelete(r *record) (*backend.Volume, error) {
	lost := fmt.Errorf("%w: volume %s is no longer in the trash of pool %s: it expired, or its space was needed", backend.ErrNotFound, r.id, p.Name)
	if err := p.usable(); err != nil {
		return nil, err
	}
	claimed := p.claim(r)
	if claimed == nil {
		return nil, lost
	}
	defer p.forget(claimed)
	place := path.Join(string(volumes), string(r.id))
	if err := p.root.Rename(r.place, place); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // purged by another process
			return nil, lost
		}
		p.mu.Lock()
		p.trash[r.place] = r
		p.mu.Unlock()
		return nil, fmt.Errorf("restoring %s of pool %s from the trash: %w", r.id, p.Name, err)
	}
	crashpoint.Here(crashpoint.UndeleteRenamed)
	back := p.read(volumes, r.id, place)
	p.mu.Lock()
	p.entries[volumes][r.id] = back
	p.mu.Unlock()
	if err := errors.Join(nodeops.SyncDir(p.root, string(volumes)), nodeops.SyncDir(p.root, trashDir)); err != nil {
		return nil, err
	}
	return p.volume(back), nil
}
