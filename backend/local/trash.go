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
	"github.com/holdfast-storage/holdfast/backend/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Trashed is a deleted volume that can still be restored.
type Trashed struct {
	ID      backend.ID
	Name    string
	Pool    string
	Size    int64
	Deleted time.Time
	Expires time.Time
}

// remove takes an entry away in two steps, so that a crash leaves it where it was or in the trash. A volume of a pool
// with a retention time stays there until it expires.
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
	gone := &record{kind: r.kind, id: r.id, place: path.Join(trashDir, trashName(r.kind, r.id, now)), meta: r.meta, damage: r.damage, charge: r.charge, deleted: now}
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
	if r.kind == groups || r.damage != nil {
		return nil
	}
	e, err := p.entry(r)
	if err != nil {
		return err
	}
	defer e.Dir.Close()
	by, err := p.engine.InUse(e)
	if err != nil {
		return err
	}
	if by != "" {
		return fmt.Errorf("%w: %s %s is in use on this host (%s); unpublish and unstage it first", backend.ErrPrecondition, r.kind, r.id, by)
	}
	return nil
}

func (p *pool) expired(r *record, now time.Time) bool {
	return r.kind != volumes || now.Sub(r.deleted) >= p.TrashRetention
}

// purge frees what lies in the trash. It takes it out of the trash first, so that nobody restores the half of it. What
// cannot be freed now is tried again later and stays promised.
func (p *pool) purge(ctx context.Context, r *record) {
	purged := &record{kind: r.kind, id: r.id, place: path.Join(buildingDir, path.Base(r.place)), charge: r.charge}
	p.mu.Lock()
	p.building[purged.place] = purged
	delete(p.trash, r.place)
	p.mu.Unlock()
	err := p.root.Rename(r.place, purged.place)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = p.discard(ctx, purged)
	}
	if err != nil {
		p.log.Warn("deleted, but its space is not free yet", "kind", r.kind, "id", r.id, "error", err)
		return
	}
	p.forget(purged)
}

// emptyTrash frees what has expired and what could not be freed before.
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
		p.purge(ctx, r)
	}
}

// Trash lists deleted volumes that can be restored, the last deleted first.
func (b *Backend) Trash(context.Context) ([]Trashed, error) {
	var all []Trashed
	for _, p := range b.pools() {
		if err := p.scan(); err != nil {
			return nil, fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err)
		}
		for _, r := range p.trashed() {
			t := Trashed{ID: r.id, Pool: p.Name, Deleted: r.deleted, Expires: r.deleted.Add(p.TrashRetention)}
			if r.meta != nil {
				t.Name, t.Size = r.meta.Name, r.meta.Content.Size
			}
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(x, y Trashed) int { return y.Deleted.Compare(x.Deleted) })
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

// Undelete takes the last deleted volume of that ID out of the trash. Its room was promised all the time.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "undelete", func(context.Context) (*backend.Volume, error) {
		if p, r := b.find(volumes, id); r != nil {
			return nil, fmt.Errorf("%w: volume %s exists in pool %s", backend.ErrExists, id, p.Name)
		}
		for _, p := range b.pools() {
			for _, r := range p.trashed() {
				if r.id == id {
					return p.undelete(r)
				}
			}
		}
		return nil, b.notFound("volume %s is not in the trash", id)
	})
}

func (p *pool) undelete(r *record) (*backend.Volume, error) {
	place := path.Join(string(volumes), string(r.id))
	if err := p.root.Rename(r.place, place); err != nil {
		return nil, fmt.Errorf("restoring %s of pool %s from the trash: %w", r.id, p.Name, err)
	}
	if err := nodeops.SyncDir(p.root, string(volumes)); err != nil {
		return nil, err
	}
	back := p.read(volumes, r.id, place)
	p.mu.Lock()
	delete(p.trash, r.place)
	p.entries[volumes][r.id] = back
	p.mu.Unlock()
	return p.volume(back), nil
}
