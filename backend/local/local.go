// Package local is the storage of one host: volumes, snapshots and groups in pools on its own file systems.
//
// A pool owns names, metadata, promised sizes, trash and recovery; an engine owns the content of an entry.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
)

// Backend serves the pools of one host.
type Backend struct {
	slots   []*slot // the first one is the default pool
	ops     backend.Operations
	log     *slog.Logger
	stop    context.CancelFunc // nil if opened by Peek
	keepers sync.WaitGroup
	wake    chan struct{} // has a token to retry pools at once
	tried   atomic.Bool   // every pool was tried at least once

	mu      sync.RWMutex
	changed func() // called when a pool is opened or goes out of reach
}

var (
	_ backend.Storage          = (*Backend)(nil)
	_ backend.Completer        = (*Backend)(nil)
	_ backend.GroupSnapshotter = (*Backend)(nil)
	_ backend.Trasher          = (*Backend)(nil)
	_ backend.PoolMemory       = (*Backend)(nil)
	_ backend.HealthObserver   = (*Backend)(nil)
)

func newBackend(log *slog.Logger) *Backend {
	b := &Backend{log: log, wake: make(chan struct{}, 1)}
	b.ops.Begun = b.hold
	return b
}

// Open locks the pools for this process, recovers them after a crash, and maintains them until Close.
func Open(ctx context.Context, configs []PoolConfig, log *slog.Logger) (*Backend, error) {
	b, err := openAll(ctx, configs, true, log)
	if err != nil {
		return nil, err
	}
	if err := b.lockAndRecover(ctx); err != nil {
		return nil, errors.Join(err, b.closePools())
	}
	b.begin(ctx, nil)
	return b, nil
}

// begin maintains the pools until Close.
func (b *Backend) begin(ctx context.Context, first chan<- struct{}) {
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.keepers.Go(func() { b.maintain(keeping) })
	b.keepers.Go(func() { b.openLoop(keeping, first) })
}

var errClosed = errors.New("it was closed")

// Peek opens pools that another process may be serving, to list volumes and trash and to restore from the trash. The
// serving process notices changes.
func Peek(ctx context.Context, configs []PoolConfig, log *slog.Logger) (*Backend, error) {
	return openAll(ctx, configs, false, log)
}

func openAll(ctx context.Context, configs []PoolConfig, serve bool, log *slog.Logger) (*Backend, error) {
	if len(configs) == 0 {
		return nil, fmt.Errorf("%w: no pool is configured", backend.ErrInvalid)
	}
	b := newBackend(log)
	for _, c := range configs {
		if i := slices.IndexFunc(b.slots, func(s *slot) bool { return s.shares(c) }); i >= 0 {
			other := b.slots[i]
			return nil, errors.Join(fmt.Errorf("%w: pools %s (%s) and %s (%s) share a name or a path", backend.ErrInvalid, other.Name, other.Path, c.Name, c.Path), b.closePools())
		}
		p, err := openPool(ctx, c, serve, log)
		if err != nil {
			return nil, errors.Join(err, b.closePools())
		}
		b.slots = append(b.slots, newSlot(Site{PoolConfig: p.PoolConfig}, p, nil))
	}
	return b, nil
}

// Pools returns the configurations with their defaults. The first one is the default pool.
func (b *Backend) Pools() []PoolConfig {
	var all []PoolConfig
	for _, s := range b.slots {
		c := s.PoolConfig
		_ = c.complete() // an invalid one is reported when the pool is opened
		all = append(all, c)
	}
	return all
}

// Close waits until no operation runs or ctx ends, and closes the pools.
func (b *Backend) Close(ctx context.Context) error {
	if b.stop != nil {
		b.stop()
		if err := backend.Await(ctx, b.keepers.Wait); err != nil { // maintenance hangs on a disk that does not answer
			return fmt.Errorf("%w: a pool does not answer: %w", backend.ErrUnavailable, err)
		}
	}
	return errors.Join(b.ops.Wait(ctx), b.closePools())
}

func (b *Backend) closePools() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, s := range b.slots {
		for _, p := range []*pool{s.pool, s.leaving} {
			if p != nil {
				errs = append(errs, p.close())
			}
		}
		s.pool, s.leaving, s.problem = nil, nil, errClosed
	}
	return errors.Join(errs...)
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
	return backend.Do(ctx, &b.ops, id, "create", func(ctx context.Context) (*backend.Volume, error) {
		if p, r := b.find(volumes, id); r != nil {
			v := p.volume(r)
			if err := v.Satisfies(spec, source); err != nil {
				return nil, err
			}
			return v, nil
		}
		if source == nil {
			p, err := b.pool(spec.Pool, backend.ErrInvalid)
			if err != nil {
				return nil, err
			}
			return p.createVolume(ctx, id, spec)
		}
		return b.createFrom(ctx, id, spec, source)
	})
}

// createFrom creates a volume from a source, on which no other operation runs in the meantime.
func (b *Backend) createFrom(ctx context.Context, id backend.ID, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	k, key := volumes, source.ID
	if source.Kind == backend.SourceSnapshot {
		k, key = snapshots, snapshotKey(source.ID)
	}
	if _, r := b.find(k, source.ID); r == nil {
		return nil, b.lacks("%s, the source of %s", source, id)
	}
	return backend.Do(ctx, &b.ops, key, "copy for "+string(id), func(ctx context.Context) (*backend.Volume, error) {
		p, r := b.find(k, source.ID)
		if r == nil {
			return nil, b.lacks("%s, the source of %s", source, id)
		}
		if spec.Pool != "" && spec.Pool != p.Name {
			return nil, fmt.Errorf("%w: %s is in pool %s and cannot be copied into pool %s; use a class of the same pool", backend.ErrInvalid, source, p.Name, spec.Pool)
		}
		return p.copyVolume(ctx, id, spec, source, r)
	})
}

func (b *Backend) Delete(ctx context.Context, id backend.ID) error {
	return backend.Run(ctx, &b.ops, id, "delete", func(ctx context.Context) error {
		p, r := b.find(volumes, id)
		if r == nil {
			return b.absent("volume %s", id)
		}
		return p.remove(ctx, r)
	})
}

func (b *Backend) Get(_ context.Context, id backend.ID) (*backend.Volume, error) {
	p, r := b.find(volumes, id)
	if r == nil {
		return nil, b.notFound("volume %s", id)
	}
	return p.volume(r), nil
}

func (b *Backend) List(context.Context) ([]*backend.Volume, error) {
	return listed(b, volumes, (*pool).showVolume, func(v *backend.Volume) backend.ID { return v.ID }), nil
}

// listed scans all pools and returns their entries of one kind, sorted by ID.
func listed[T any](b *Backend, k kind, show func(*pool, *record, error) T, id func(T) backend.ID) []T {
	var all []T
	for _, p := range b.pools() {
		if !b.checkPlace(p) {
			continue
		}
		problem := p.usable()
		if err := p.scan(); err != nil && problem == nil {
			problem = fmt.Errorf("%w: pool %s: %w", backend.ErrUnavailable, p.Name, err) // what is known of the pool is still returned
		}
		for _, r := range p.each(k) {
			if b.whole(r) {
				all = append(all, show(p, r, problem))
			}
		}
	}
	slices.SortFunc(all, func(x, y T) int { return cmp.Compare(id(x), id(y)) })
	return all
}

func (b *Backend) Capacity(ctx context.Context, name string) (backend.Capacity, error) {
	p, err := b.pool(name, backend.ErrNotFound)
	if err != nil {
		return backend.Capacity{}, err
	}
	if err := p.usable(); err != nil {
		return backend.Capacity{}, err
	}
	usage, err := p.measure(ctx)
	if err != nil {
		return backend.Capacity{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.capacity(usage)
	c.Identity, c.Condition = p.head.identity(), p.ownCondition()
	c.FileSystem, c.SnapshotCost = p.engine.FileSystem()
	return c, nil
}

func (b *Backend) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "expand", func(ctx context.Context) (*backend.Volume, error) {
		p, r := b.find(volumes, id)
		if r == nil {
			return nil, b.lacks("volume %s", id)
		}
		return p.expand(ctx, r, size)
	})
}

func (b *Backend) Complete(ctx context.Context, id backend.ID) error {
	return backend.Run(ctx, &b.ops, id, "complete", func(context.Context) error {
		p, r := b.find(volumes, id)
		if r == nil {
			return b.lacks("volume %s", id)
		}
		return p.complete(r)
	})
}

// find searches all pools for an entry.
func (b *Backend) find(k kind, id backend.ID) (*pool, *record) {
	for _, p := range b.pools() {
		if r := p.find(k, id); r != nil && b.checkPlace(p) {
			return p, r
		}
	}
	return nil, nil
}

// keepEvery is the interval at which pools are measured and expired trash is removed.
const keepEvery = 10 * time.Second

// newTicker makes the ticks of the loops. Tests replace it, and do what a loop does at a time of their own.
var newTicker = time.NewTicker

func (b *Backend) maintain(ctx context.Context) {
	tick := newTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, p := range b.pools() {
				b.keepers.Go(func() { b.unlessBusy(p, &p.maintaining, func() { b.maintainPool(ctx, p, now) }) })
				b.keepers.Go(func() { b.unlessBusy(p, &p.examining, func() { b.examinePool(ctx, p) }) })
				b.keepers.Go(func() { b.trimPool(ctx, p, now) })
			}
		}
	}
}

// trimEvery is how often the space of deleted files is given back in each volume that is in use.
const trimEvery = 7 * 24 * time.Hour

// trimPool gives back that of one volume, when its turn has come: it costs the disk something.
func (b *Backend) trimPool(ctx context.Context, p *pool, now time.Time) {
	trimmer, ok := p.engine.(engine.Trimmer)
	if !ok || !p.trimming.TryLock() {
		return
	}
	defer p.trimming.Unlock()
	if now.Before(p.trimNext) {
		return
	}
	id, of, err := trimmer.Trim(ctx, p.contents(), p.trimmed) // it is about mounts, and so does not keep the pool
	if err != nil && ctx.Err() == nil {
		p.log.Warn("the space of deleted files was not given back", "error", err)
	}
	p.trimmed, p.trimNext = id, now.Add(trimEvery/time.Duration(max(of, 7))) // others may be mounted tomorrow
}

// unlessBusy runs do for an open pool, which is not closed before its end, unless busy is locked: do takes long where a large
// volume is removed, or a disk hangs.
func (b *Backend) unlessBusy(p *pool, busy *sync.Mutex, do func()) {
	if !b.holdPool(p) {
		return
	}
	defer p.users.Add(-1)
	if !busy.TryLock() {
		return
	}
	defer busy.Unlock()
	do()
}

// maintainPool maintains one pool. It does nothing if the pool is gone, which it detects.
func (b *Backend) maintainPool(ctx context.Context, p *pool, now time.Time) {
	if !b.checkPlace(p) {
		return
	}
	if err := p.survey(ctx); err != nil {
		p.log.Warn("cannot measure pool", "error", err)
	}
	p.emptyTrash(ctx, now)
	p.removeLeftovers(ctx, now)
	if err := p.evictForReserve(ctx); err != nil {
		p.log.Warn("cannot check whether trash must be removed", "error", err)
	}
}

// lockAndRecover locks the pools and recovers interrupted operations.
func (b *Backend) lockAndRecover(ctx context.Context) error {
	for _, p := range b.pools() {
		if err := p.take(ctx); err != nil {
			return err
		}
	}
	for _, p := range b.pools() {
		if err := p.recover(ctx); err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
	}
	for _, p := range b.pools() {
		b.sweepGroups(ctx, p)
	}
	for _, p := range b.pools() {
		if err := p.survey(ctx); err != nil {
			return err
		}
		p.examine(ctx)
	}
	return nil
}
