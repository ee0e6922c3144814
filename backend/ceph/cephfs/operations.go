//go:build ceph

package cephfs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// do runs one operation on an ID, as backend.Do does, and notes that it works on it.
func do[T any](ctx context.Context, b *Backend, id backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	count(b, b.working, id, 1) // who waits for the ID works on it too
	defer count(b, b.working, id, -1)
	return ceph.Do(ctx, b.cluster, &b.ops, id, verb, func(ctx context.Context) (T, error) {
		count(b, b.working, id, 1)
		defer count(b, b.working, id, -1)
		return f(ctx)
	})
}

func count(b *Backend, counts map[backend.ID]int, id backend.ID, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if counts[id] += by; counts[id] == 0 {
		delete(counts, id)
	}
}

// works says whether an operation works on an ID, or is about to.
func (b *Backend) works(id backend.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working[id] > 0
}

// deletes returns what says whether a volume is being deleted: who makes it has no reason to go on.
func (b *Backend) deletes(id backend.ID) func() bool {
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.gone[id] > 0
	}
}

func (b *Backend) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, nil)
}

func (b *Backend) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceVolume, ID: source})
}

func (b *Backend) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceSnapshot, ID: snapshot})
}

func (b *Backend) create(ctx context.Context, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, id, "create", func(ctx context.Context) (*backend.Volume, error) {
		e, err := p.find(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case e != nil && e.copies():
			if err := p.describe(e).Satisfies(spec, source); err != nil {
				return nil, err
			}
			return p.finishCopy(ctx, e.name, e.volume, b.deletes(id))
		case e != nil:
			v, err := p.volume(ctx, e)
			if err != nil {
				return nil, err
			}
			if err := v.Satisfies(spec, source); err != nil {
				return nil, err
			}
			return v, nil
		case source != nil:
			return b.createFrom(ctx, p, id, spec, source)
		}
		return p.create(ctx, id, spec)
	})
}

func (b *Backend) Delete(ctx context.Context, id backend.ID) error {
	p, err := b.use(ctx)
	if err != nil {
		return err
	}
	count(b, b.gone, id, 1)
	defer count(b, b.gone, id, -1)
	_, err = do(ctx, b, id, "delete", func(ctx context.Context) (any, error) {
		e, err := p.find(ctx, id)
		if err == nil && e != nil {
			err = p.remove(ctx, e)
		}
		return nil, err
	})
	return err
}

func (b *Backend) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	e, err := p.existing(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.volume(ctx, e)
}

// existing finds a volume that was made.
func (p *pool) existing(ctx context.Context, id backend.ID) (*entry, error) {
	e, err := p.find(ctx, id)
	if err == nil && (e == nil || e.copies()) {
		err = fmt.Errorf("%w: volume %s in pool %s", backend.ErrNotFound, id, p.Name)
	}
	return e, err
}

func (b *Backend) List(ctx context.Context) (list []*backend.Volume, err error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	all, err := p.entries(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !e.visible() {
			continue
		}
		v, err := p.volume(ctx, e)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	slices.SortStableFunc(list, func(x, y *backend.Volume) int { return cmp.Compare(x.ID, y.ID) })
	return list, nil
}

// entries reads all subvolumes of Holdfast.
func (p *pool) entries(ctx context.Context) ([]*entry, error) {
	return look(ctx, p, "reading the pool", func(g *group) ([]*entry, error) {
		all, _, err := g.entries()
		return all, err
	})
}

func (b *Backend) Capacity(ctx context.Context, name string) (backend.Capacity, error) {
	if name != "" && name != b.config.Name {
		return backend.Capacity{}, fmt.Errorf("%w: pool %s; the pool here is %s", backend.ErrNotFound, backend.Quote(name), b.config.Name)
	}
	p, err := b.use(ctx)
	if err != nil {
		return backend.Capacity{}, err
	}
	s, err := p.survey(ctx)
	if err != nil {
		return backend.Capacity{}, err
	}
	_, gives, err := p.trashOf(ctx, s)
	if err != nil {
		return backend.Capacity{}, err
	}
	return p.capacity(s, gives+p.gifts()), nil
}

func (b *Backend) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	p, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, id, "expand", func(ctx context.Context) (*backend.Volume, error) {
		e, err := p.existing(ctx, id)
		if err != nil {
			return nil, err
		}
		return p.expand(ctx, e, size)
	})
}

func (b *Backend) Complete(ctx context.Context, id backend.ID) error {
	p, err := b.use(ctx)
	if err != nil {
		return err
	}
	_, err = do(ctx, b, id, "complete", func(ctx context.Context) (any, error) {
		e, err := p.existing(ctx, id)
		if err != nil || e.volume == nil || !e.volume.Incomplete {
			return nil, err
		}
		m := *e.volume
		m.Incomplete = false
		return nil, p.record(ctx, e.name, &m)
	})
	return err
}
