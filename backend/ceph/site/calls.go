//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
)

// enter returns the pool as it is served now. While it is being connected to, the caller waits.
func (p *pool) enter(ctx context.Context) (*serving, error) {
	for {
		p.mu.Lock()
		s, settled, trouble := p.now, p.settled, p.trouble
		if s != nil {
			s.calls.Add(1)
		}
		p.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case settled == nil:
			return nil, trouble
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: pool %s: the Ceph cluster is being connected to: %w", backend.ErrUnavailable, p.Pool, ctx.Err())
		}
	}
}

// use calls the engine.
func use[T any](ctx context.Context, p *pool, f func(*serving) (T, error)) (T, error) {
	s, err := p.enter(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer s.calls.Done()
	value, err := f(s)
	if errors.Is(err, backend.ErrUnavailable) {
		p.suspect()
	}
	return value, err
}

// do is use for what returns nothing.
func (p *pool) do(ctx context.Context, f func(*serving) error) error {
	_, err := use(ctx, p, func(s *serving) (any, error) { return nil, f(s) })
	return err
}

// suspect has the pool looked at soon.
func (p *pool) suspect() {
	select {
	case p.suspected <- struct{}{}:
	default:
	}
}

func (p *pool) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Create(ctx, spec) })
}

func (p *pool) Delete(ctx context.Context, id backend.ID) error {
	return p.do(ctx, func(s *serving) error { return s.Delete(ctx, id) })
}

func (p *pool) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Get(ctx, id) })
}

func (p *pool) List(ctx context.Context) ([]*backend.Volume, error) {
	return use(ctx, p, func(s *serving) ([]*backend.Volume, error) { return s.List(ctx) })
}

// Capacity says what is wrong with the pool in the words of the last look at it, if there are some.
func (p *pool) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	c, err := use(ctx, p, func(s *serving) (backend.Capacity, error) { return s.Capacity(ctx, pool) })
	if errors.Is(err, backend.ErrUnavailable) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.trouble != nil {
			return c, p.trouble
		}
	}
	return c, err
}

func (p *pool) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Expand(ctx, id, size) })
}

func (p *pool) Complete(ctx context.Context, id backend.ID) error {
	return p.do(ctx, func(s *serving) error { return s.Complete(ctx, id) })
}

// ClientOf finds none of a directory, which many nodes use at once.
func (p *pool) ClientOf(ctx context.Context, id backend.ID, known []string) (string, error) {
	return use(ctx, p, func(s *serving) (string, error) {
		if watched, is := s.engine.(backend.Watched); is {
			return watched.ClientOf(ctx, id, known)
		}
		return "", nil
	})
}

func (p *pool) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	return use(ctx, p, func(s *serving) (*backend.Snapshot, error) { return s.Snapshot(ctx, spec) })
}

func (p *pool) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return p.do(ctx, func(s *serving) error { return s.DeleteSnapshot(ctx, id) })
}

func (p *pool) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	return use(ctx, p, func(s *serving) (*backend.Snapshot, error) { return s.GetSnapshot(ctx, id) })
}

func (p *pool) ListSnapshots(ctx context.Context) ([]*backend.Snapshot, error) {
	return use(ctx, p, func(s *serving) ([]*backend.Snapshot, error) { return s.ListSnapshots(ctx) })
}

func (p *pool) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Restore(ctx, snapshot, spec) })
}

func (p *pool) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Clone(ctx, source, spec) })
}

func (p *pool) Trash(ctx context.Context) ([]backend.Trashed, error) {
	return use(ctx, p, func(s *serving) ([]backend.Trashed, error) { return s.Trash(ctx) })
}

func (p *pool) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return use(ctx, p, func(s *serving) (*backend.Volume, error) { return s.Undelete(ctx, id) })
}

var _ interface { // all that the agent looks for
	engine
	backend.Watched
} = (*pool)(nil)
