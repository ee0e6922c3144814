package local

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// building is an entry under construction. It has a temporary name until it is complete, so that an entry exists
// completely or not at all.
type building struct {
	pool   *pool
	record *record
	entry  *engine.Entry
}

// begin promises the space and creates the temporary entry with its metadata.
func (p *pool) begin(ctx context.Context, k kind, m *meta) (*building, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	m.Version, m.Created = version, time.Now().UTC()
	r := &record{kind: k, id: m.ID, place: path.Join(buildingDir, timedName(k, m.ID, m.Created)), meta: m, charge: m.Charge}
	if err := p.promise(ctx, r); err != nil {
		return nil, err
	}
	b := &building{pool: p, record: r}
	if err := b.prepare(); err != nil {
		if errors.Is(err, unix.EROFS) { // since the last examination
			p.failed.Store(true)
			err = cmp.Or(p.usable(), err)
		}
		return nil, errors.Join(err, b.abandon(ctx))
	}
	crashpoint.Here(crashpoint.BuildBegun)
	return b, nil
}

func (b *building) prepare() error {
	p, r := b.pool, b.record
	if err := p.root.Mkdir(r.place, 0o700); err != nil {
		return err
	}
	dir, err := p.root.OpenRoot(r.place)
	if err != nil {
		return err
	}
	b.entry = &engine.Entry{ID: r.id, Dir: dir, Content: &r.meta.Content, Save: func() error { return writeFile(dir, metaFile, r.meta) }}
	data, err := encode(r.meta)
	if err != nil {
		return err
	}
	return dir.WriteFile(metaFile, data, 0o600) // synced with the content
}

// commit makes the complete entry durable and renames it to its final name.
func (b *building) commit(ctx context.Context, copied bool) (*record, error) {
	p, r := b.pool, b.record
	crashpoint.Here(crashpoint.BuildFilled)
	if r.kind == snapshots {
		if err := b.recharge(ctx); err != nil {
			return nil, err
		}
	}
	if r.kind != groups {
		if err := p.engine.Finish(ctx, b.entry, copied); err != nil {
			return nil, err
		}
	}
	if err := nodeops.SyncFiles(b.entry.Dir); err != nil {
		return nil, err
	}
	final := &record{kind: r.kind, id: r.id, place: path.Join(string(r.kind), string(r.id)), meta: r.meta, charge: r.charge}
	if err := p.root.Rename(r.place, final.place); err != nil {
		return nil, err
	}
	if err := nodeops.SyncDir(p.root, string(r.kind)); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.BuildCommitted)
	b.entry.Dir.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.building, r.place)
	p.entries[r.kind][r.id] = final
	return final, nil
}

// recharge charges a snapshot with what it holds: its source has written more when it was frozen than had reached the disk
// before.
func (b *building) recharge(ctx context.Context) error {
	p, r := b.pool, b.record
	used, _ := p.engine.Inspect(b.entry)
	more := min(used, r.meta.Content.Size) - r.charge
	if more <= 0 {
		return nil
	}
	extra := &record{kind: r.kind, id: r.id, place: r.place + ".more", charge: more}
	if err := p.promise(ctx, extra); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.building, extra.place)
	r.charge += more
	p.mu.Unlock()
	r.meta.Charge = r.charge
	return b.entry.Save()
}

// abandon removes an entry that could not be completed. Its space stays promised until its data is removed.
func (b *building) abandon(ctx context.Context) error {
	if b.entry != nil {
		b.entry.Dir.Close()
	}
	if err := b.pool.discard(ctx, b.record); err != nil {
		b.pool.log.Error("an unfinished entry stays; its removal is retried", "place", b.record.place, "error", err)
		b.pool.keepLeftover(b.record, err, firstWait)
		return err
	}
	b.pool.forget(b.record)
	return nil
}

// guard is deferred while an entry is built. If a panic kept it from being committed or abandoned, it becomes a leftover, so that it
// is counted and its removal retried.
func (b *building) guard() {
	p, r := b.pool, b.record
	p.mu.Lock()
	stuck := p.building[r.place] == r && p.leftovers[r.place] == nil
	p.mu.Unlock()
	if stuck {
		b.entry.Dir.Close()
		p.log.Error("making an entry panicked; its removal is retried", "place", r.place)
		p.keepLeftover(r, errors.New("its making panicked"), firstWait)
	}
}

// discard removes an entry's content and then the entry. Parts that do not exist are no error.
func (p *pool) discard(ctx context.Context, r *record) error {
	dir, err := p.root.OpenRoot(r.place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	content := engine.Content{}
	if m, err := readMeta(dir, r.id); err == nil {
		content = m.Content
	}
	if r.kind != groups {
		if err := p.engine.Remove(ctx, &engine.Entry{ID: r.id, Dir: dir, Content: &content}); err != nil {
			return err
		}
	}
	return nodeops.RemoveTree(ctx, p.root, r.place)
}
