//go:build ceph

package cephfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// remove takes a volume away in two steps, so that a crash leaves it where it was or in the trash. In the trash it is the
// subvolume that it was, with the time of its deletion.
func (p *pool) remove(ctx context.Context, e *entry) error {
	switch {
	case errors.Is(e.damage, errNewer):
		return fmt.Errorf("%w: %w; delete it with the newer program", backend.ErrPrecondition, e.damage)
	case e.damage != nil:
		return fmt.Errorf("%w: %w; look at them, then remove it with ceph fs subvolume rm %s %s --group_name %s", backend.ErrPrecondition, e.damage, p.in.FileSystem, e.name, p.Group)
	}
	now := time.Now().UTC()
	m := *e.volume
	m.Deleted = &now
	changed, err := look(ctx, p, "looking when "+e.name+" was changed", func(g *group) (time.Time, error) { return g.changed(m.Path) })
	switch {
	case err == nil:
		m.Changed = &changed
	case !gone(err):
		return err
	}
	if p.expired(e.name, &m, now) || m.State != ready {
		m.State = removing
	}
	if err := p.record(ctx, e.name, &m); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DeleteTrashed)
	if m.State != removing {
		return nil
	}
	if err := p.purge(ctx, &entry{name: e.name, id: e.id, volume: &m}); err != nil {
		p.log.Warn("deleted, but its space is not free yet; retrying", "volume", e.id, "error", err)
	}
	return nil
}

func (p *pool) expired(name string, m *meta, now time.Time) bool {
	return m.Ephemeral || p.TrashRetention < 0 || p.deleted.Ripe(name, *m.Deleted, now, p.TrashRetention)
}

// markRemoving takes a volume out of the trash for good, so that half of it is never restored. The caller holds the token of promises.
func (p *pool) markRemoving(ctx context.Context, e *entry) error {
	m := *e.volume
	m.State = removing
	return p.record(ctx, e.name, &m)
}

// purge removes a volume that was marked.
func (p *pool) purge(ctx context.Context, e *entry) error {
	crashpoint.Here(crashpoint.TrashTaken)
	p.deleted.Forget(e.name)
	return p.destroy(ctx, e.name, e.volume)
}

// expire removes what has been in the trash for long enough.
func (p *pool) expire(ctx context.Context, name string) error {
	e, err := p.takeExpired(ctx, name)
	if err != nil || e == nil {
		return err
	}
	return p.purge(ctx, e)
}

func (p *pool) takeExpired(ctx context.Context, name string) (*entry, error) {
	release, err := p.promises(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	e, err := look(ctx, p, "looking at "+name, func(g *group) (*entry, error) { return g.read(name) })
	if err != nil || e == nil || !e.volume.trashed() || !p.expired(name, e.volume, time.Now()) {
		return nil, err
	}
	if used, err := p.usedSince(ctx, e); err != nil || used {
		return nil, err
	}
	return e, p.markRemoving(ctx, e)
}

// lastWrites is how long after its deletion the clients of a volume may still write what they had in memory.
const lastWrites = time.Minute

// usedSince says whether the files of a deleted volume were changed after its deletion: it was restored, and Ceph has taken
// that back, as with `cephfs-journal-tool` or an older copy of an object. It is not removed by itself.
func (p *pool) usedSince(ctx context.Context, e *entry) (bool, error) {
	changed, err := look(ctx, p, "looking when "+e.name+" was changed", func(g *group) (time.Time, error) { return g.changed(e.volume.Path) })
	if gone(err) {
		return false, nil
	}
	last := e.volume.Deleted
	if e.volume.Changed != nil {
		last = e.volume.Changed
	}
	if err != nil || !changed.After(last.Add(lastWrites)) {
		return false, err
	}
	if p.firstTime("used " + e.name) {
		p.log.Error("a volume in the trash was used after its deletion, so Ceph has taken back that it was restored; it is kept: restore it again, or remove it with `ceph fs subvolume rm`", "volume", e.id, "subvolume", e.name, "deleted", e.volume.Deleted, "changed", changed)
	}
	return true, nil
}

// trashed returns what can be restored, the last deleted first.
func (p *pool) trashed(ctx context.Context) ([]*entry, error) {
	return look(ctx, p, "reading the trash", func(g *group) (trash []*entry, err error) {
		all, _, err := g.entries()
		for _, e := range all {
			if e.volume.trashed() {
				trash = append(trash, e)
			}
		}
		slices.SortFunc(trash, func(x, y *entry) int { return y.volume.Deleted.Compare(*x.volume.Deleted) })
		return trash, err
	})
}

// Trash lists deleted volumes that can be restored, the last deleted first.
func (b *Backend) Trash(ctx context.Context) ([]backend.Trashed, error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	trash, err := p.trashed(ctx)
	if err != nil {
		return nil, err
	}
	var all []backend.Trashed
	for _, e := range trash {
		m := e.volume
		all = append(all, backend.Trashed{
			ID: e.id, Name: m.Name, Pool: p.Name, Size: m.Size, Labels: m.Labels, Deleted: *m.Deleted, Expires: m.Deleted.Add(max(0, p.TrashRetention)),
			Incomplete: m.Incomplete,
		})
	}
	return all, nil
}

// Undelete takes the last deleted volume of that ID out of the trash. Its room was promised all the time.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, id, "undelete", func(ctx context.Context) (*backend.Volume, error) { return p.undelete(ctx, id) })
}

func (p *pool) undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	e, err := p.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case e != nil:
		return nil, fmt.Errorf("%w: volume %s exists in pool %s", backend.ErrExists, id, p.Name)
	}
	release, err := p.promises(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	trash, err := p.trashed(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(trash, func(e *entry) bool { return e.id == id })
	if i < 0 {
		return nil, fmt.Errorf("%w: volume %s is not in the trash of pool %s", backend.ErrNotFound, id, p.Name)
	}
	m := *trash[i].volume
	m.Deleted, m.Changed = nil, nil
	if err := p.record(ctx, trash[i].name, &m); err != nil {
		return nil, err
	}
	p.deleted.Forget(trash[i].name)
	crashpoint.Here(crashpoint.UndeleteRenamed)
	return p.volume(ctx, &entry{name: trash[i].name, id: id, volume: &m})
}
