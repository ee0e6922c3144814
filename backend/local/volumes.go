package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// find returns an entry, and looks on disk if it is not known.
func (p *pool) find(k kind, id backend.ID) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.entries[k][id]; r != nil {
		return r
	}
	place := path.Join(string(k), string(id))
	if _, err := p.root.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r := p.read(k, id, place)
	p.entries[k][id] = r
	// Another process may have restored it, so it no longer counts as trash.
	maps.DeleteFunc(p.trash, func(trashed string, t *record) bool {
		if t.id != id {
			return false
		}
		_, err := p.root.Lstat(trashed)
		return errors.Is(err, fs.ErrNotExist)
	})
	return r
}

func (p *pool) each(k kind) []*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*record, 0, len(p.entries[k]))
	for _, r := range p.entries[k] {
		all = append(all, r)
	}
	return all
}

// volume converts a record.
func (p *pool) volume(r *record) *backend.Volume { return p.showVolume(r, p.usable()) }

// showVolume converts a record of a pool that may have a problem.
func (p *pool) showVolume(r *record, problem error) *backend.Volume {
	v := &backend.Volume{ID: r.id, Pool: p.Name, PoolID: p.identity().ID}
	v.Used, v.Condition, v.Access = p.inspect(r)
	if problem != nil {
		v.Condition = backend.Condition{Abnormal: true, Message: problem.Error()}
	}
	if !v.Condition.Abnormal {
		v.Condition = p.conditionOf(r.id)
	}
	if m := r.meta; m != nil {
		v.Name, v.Size, v.Mode, v.FSType, v.Provisioning = m.Name, m.Content.Size, m.Content.Mode, m.Content.FSType, m.Content.Provisioning
		v.FSSize, v.MkfsOptions, v.Inodes, v.Labels, v.Source, v.Created = m.Content.FSSize, m.Content.MkfsOptions, m.Content.Inodes, m.Labels, m.Source, m.Created
		v.OnNodeLoss, v.Incomplete = m.OnNodeLoss, m.Incomplete
	}
	return v
}

func (p *pool) createVolume(ctx context.Context, id backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return p.build(ctx, id, spec, nil, nil, p.engine.Make)
}

// copyVolume creates a volume from r. A volume in use is frozen during the copy.
func (p *pool) copyVolume(ctx context.Context, id backend.ID, spec backend.VolumeSpec, source *backend.Source, r *record) (*backend.Volume, error) {
	from, err := p.source(r)
	if err != nil {
		return nil, err
	}
	defer from.Dir.Close()
	return p.build(ctx, id, spec, source, from.Content, func(ctx context.Context, e *engine.Entry) error {
		if source.Kind == backend.SourceSnapshot {
			return p.engine.Copy(ctx, e, from)
		}
		return p.copyFrozen(ctx, e, from)
	})
}

// copyFrozen copies one entry at one instant.
func (p *pool) copyFrozen(ctx context.Context, e, from *engine.Entry) error {
	return p.engine.Frozen(ctx, from, "", func(ctx context.Context) error {
		crashpoint.Here(crashpoint.CopyFrozen)
		err := p.engine.Copy(ctx, e, from)
		crashpoint.Here(crashpoint.CopyDone)
		return err
	})
}

// build plans a volume and creates its content with fill.
func (p *pool) build(ctx context.Context, id backend.ID, spec backend.VolumeSpec, source *backend.Source, from *engine.Content, fill func(context.Context, *engine.Entry) error) (*backend.Volume, error) {
	content, smallest, err := p.engine.Plan(spec, from)
	if err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", id, p.Name, err)
	}
	if from != nil && spec.Size.Required == 0 {
		spec.Size.Required = smallest // a copy is at least as large as its source
	}
	if content.Size, err = spec.Size.Choose(smallest, backend.SizeUnit); err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", id, p.Name, err)
	}
	if from == nil {
		content.FSSize = content.Size
	}
	m := &meta{
		ID: id, Name: spec.Name, Content: content, Charge: content.Size, Labels: spec.Labels, OnNodeLoss: spec.OnNodeLoss, Source: source,
		Ephemeral: spec.Ephemeral, Incomplete: spec.Incomplete,
	}
	if from != nil {
		m.copies = p.engine.Inodes(&engine.Entry{ID: id, Content: from})
	}
	b, err := p.begin(ctx, volumes, m)
	if err != nil {
		return nil, err
	}
	r, err := b.fillAndCommit(ctx, source != nil, fill)
	if err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", id, p.Name, err)
	}
	return p.volume(r), nil
}

func (b *building) fillAndCommit(ctx context.Context, copied bool, fill func(context.Context, *engine.Entry) error) (*record, error) {
	defer b.guard()
	filled := backend.Step(b.pool.log, b.record.id, "fill")
	err := fill(ctx, b.entry)
	filled()
	if err == nil {
		var r *record
		defer backend.Step(b.pool.log, b.record.id, "commit")()
		if r, err = b.commit(ctx, copied); err == nil {
			return r, nil
		}
	}
	return nil, errors.Join(err, b.abandon(ctx))
}

// expand grows the content first: after a crash, content that is larger than recorded is accepted, while a smaller one
// would be damage.
func (p *pool) expand(ctx context.Context, r *record, wish backend.Size) (*backend.Volume, error) {
	e, err := p.entry(r)
	if err != nil {
		return nil, err
	}
	defer e.Dir.Close()
	if wish.Required == 0 {
		wish.Required = e.Content.Size
	}
	size, err := wish.Choose(e.Content.Size, backend.SizeUnit)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", r.id, err)
	}
	if size == e.Content.Size {
		return p.volume(r), nil
	}
	if err := p.usable(); err != nil {
		return nil, err
	}
	more := &record{kind: r.kind, id: r.id, place: r.place, charge: size - r.charge}
	if err := p.promise(ctx, more); err != nil {
		return nil, err
	}
	defer p.forget(more)
	e.Content.Size = size
	if err := p.engine.Grow(ctx, e); err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", r.id, p.Name, err)
	}
	crashpoint.Here(crashpoint.ExpandGrown)
	if err := p.replace(r, e, sizeOf(e)); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.ExpandRecorded)
	return p.volume(p.find(r.kind, r.id)), nil
}

// complete records that a volume has all of its content.
func (p *pool) complete(r *record) error {
	e, err := p.entry(r)
	if err != nil {
		return err
	}
	defer e.Dir.Close()
	if !r.meta.Incomplete {
		return nil
	}
	if err := p.usable(); err != nil {
		return err
	}
	return p.replace(r, e, func(m *meta) { m.Incomplete = false })
}

// sizeOf changes metadata to what the content of an entry is now.
func sizeOf(e *engine.Entry) func(*meta) {
	return func(m *meta) { m.Content, m.Charge = *e.Content, e.Content.Size }
}

// replace writes the changed metadata of an entry.
func (p *pool) replace(r *record, e *engine.Entry, change func(*meta)) error {
	m := *r.meta
	change(&m)
	if err := writeFile(e.Dir, metaFile, &m); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries[r.kind][r.id] = &record{kind: r.kind, id: r.id, place: r.place, meta: &m, charge: m.Charge}
	return nil
}

// forget ends a promise.
func (p *pool) forget(r *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.building, r.place)
	delete(p.leftovers, r.place)
}
