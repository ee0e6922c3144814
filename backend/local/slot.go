package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Site is a pool whose directory may have to be created or mounted before it is opened.
type Site struct {
	PoolConfig
	// Reach creates or mounts the directory, before each attempt to open the pool. It creates nothing if an existing pool
	// is expected. Nil if the directory exists.
	Reach func(context.Context, backend.PoolExpectation) error
}

// slot is a configured pool, open or out of reach. Backend.mu guards the fields that change, including the expectation
// in Site.
type slot struct {
	Site
	pool    *pool         // nil while it is out of reach
	leaving *pool         // went out of reach; to be closed when no operation runs in it
	problem error         // why it is out of reach
	trying  chan struct{} // holds a token while an attempt to open it runs
}

func newSlot(s Site, p *pool, problem error) *slot {
	return &slot{Site: s, pool: p, problem: problem, trying: make(chan struct{}, 1)}
}

const (
	// seekEvery is the interval at which a pool that is out of reach is retried.
	seekEvery = 10 * time.Second
	// diskEvery is after how many intervals a new pool looks for a disk again. There may never be one.
	diskEvery = 6
	// seekFirst is how long a start waits for pools that do not answer, and an attempt to open one holds up the others.
	seekFirst = 10 * time.Second
)

// OpenReachable is Open for pools that may be out of reach: calls for such a pool fail with ErrUnavailable and the
// reason, and opening it is retried. The list of pools may be empty.
func OpenReachable(ctx context.Context, sites []Site, log *slog.Logger) *Backend {
	b := newBackend(log)
	for _, s := range sites {
		b.slots = append(b.slots, newSlot(s, nil, errors.New("it is being opened")))
	}
	first := make(chan struct{})
	b.begin(ctx, first)
	late := time.NewTimer(seekFirst)
	defer late.Stop()
	select {
	case <-first:
	case <-late.C:
	case <-ctx.Done():
	}
	return b
}

// openLoop tries to open the pools that are out of reach, in order, and checks the open ones. It closes first after the
// first round.
func (b *Backend) openLoop(ctx context.Context, first chan<- struct{}) {
	tick := newTicker(seekEvery)
	defer tick.Stop()
	for ticks := 0; ; {
		b.tryAll(ctx, ticks%diskEvery == 0)
		b.tried.Store(ctx.Err() == nil)
		if first != nil {
			close(first)
			first = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticks++
		case <-b.wake:
			ticks = 0
		}
	}
}

func (b *Backend) tryAll(ctx context.Context, withoutDisk bool) {
	for _, s := range b.slots {
		if withoutDisk || !b.hasNone(s) {
			b.attempt(ctx, s)
		}
	}
}

// hasNone says whether a pool is new and has found no disk.
func (b *Backend) hasNone(s *slot) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return s.pool == nil && backend.PoolReasonOf(s.problem) == backend.NoDisk
}

// attempt opens or checks a pool after an earlier attempt has ended, and waits for it, both for a limited time: a disk
// that does not answer must not keep other pools closed. What takes longer goes on.
func (b *Backend) attempt(ctx context.Context, s *slot) {
	late := time.NewTimer(seekFirst)
	defer late.Stop()
	select {
	case s.trying <- struct{}{}:
	case <-late.C:
		return
	case <-ctx.Done():
		return
	}
	done := make(chan struct{})
	b.keepers.Go(func() {
		defer close(done)
		defer func() { <-s.trying }()
		if p := b.opened(s); p != nil && b.checkPlace(p) {
			b.countLate(s, p)
		} else if ctx.Err() == nil {
			b.tryOne(ctx, s)
		}
	})
	select {
	case <-done:
	case <-late.C:
	}
}

func (b *Backend) opened(s *slot) *pool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return s.pool
}

// tryOne opens one pool that is out of reach.
func (b *Backend) tryOne(ctx context.Context, s *slot) {
	b.mu.RLock()
	before, c := s.problem, s.PoolConfig
	b.mu.RUnlock()
	if !b.closeLeaving(s) {
		return
	}
	p, err := b.reach(ctx, s, c)
	switch {
	case err == nil:
		b.log.Info("pool opened", "pool", s.Name, "path", s.Path, "id", p.head.UUID, "generation", p.head.Generation)
	case before == nil || before.Error() != err.Error():
		level := slog.LevelWarn
		if backend.PoolReasonOf(err) == backend.NoDisk { // perhaps the node has fewer disks than the pool may have
			level = slog.LevelInfo
		}
		b.log.Log(ctx, level, "a pool is out of reach", "pool", s.Name, "error", err)
	}
	b.mu.Lock()
	c.Expect.Remedy = s.Expect.Remedy // only for messages
	switch {
	case err != nil:
		s.problem = err
	case s.Expect != c.Expect: // the expected pool was changed in the meantime: the next attempt uses it
		s.leaving, s.problem = p, errors.New("it is being opened")
		b.retryNow()
	default:
		s.pool, s.problem = p, nil
	}
	b.mu.Unlock()
	if err == nil || before == nil || before.Error() != err.Error() {
		b.notify()
	}
}

// reach opens one pool.
func (b *Backend) reach(ctx context.Context, s *slot, c PoolConfig) (p *pool, err error) {
	i := slices.Index(b.slots, s)
	if j := slices.IndexFunc(b.slots, func(o *slot) bool { return o.shares(c) }); j < i {
		return nil, fmt.Errorf("it shares its name or path with pool %s (%s); choose others", b.slots[j].Name, b.slots[j].Path)
	}
	if s.Reach != nil {
		if err := s.Reach(ctx, c.Expect); err != nil {
			return nil, err
		}
	}
	shown, unseen := nodeops.Host{Proc: c.HostProc}.Show(c.Path)
	if shown {
		b.log.Info("mounted the host's file system at a pool", "pool", c.Name, "path", c.Path)
	}
	if p, err = openPool(ctx, c, true, b.log); err != nil {
		if unseen != nil {
			err = fmt.Errorf("%w; this process does not see the host's mounts there (%v): if it is mounted, delete the pod of this process, and the next one sees it", err, unseen)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			err, p = errors.Join(err, p.close()), nil
		}
	}()
	if err := p.take(ctx); err != nil {
		return p, err
	}
	if err := p.recover(ctx); err != nil {
		return p, err
	}
	b.sweepGroups(ctx, p)
	if err := p.survey(ctx); err != nil {
		return p, err
	}
	p.examine(ctx)
	return p, nil
}

func (s *slot) shares(c PoolConfig) bool { return s.Name == c.Name || s.Path == c.Path }

// pools returns the open pools.
func (b *Backend) pools() []*pool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var open []*pool
	for _, s := range b.slots {
		if s.pool != nil {
			open = append(open, s.pool)
		}
	}
	return open
}

// outOfReach returns which pools are out of reach and why, so that their volumes are not treated as deleted; empty if
// all are open that may have any.
func (b *Backend) outOfReach() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []string
	for _, s := range b.slots {
		if s.pool == nil && backend.PoolReasonOf(s.problem) != backend.NoDisk {
			all = append(all, fmt.Sprintf("pool %s is out of reach: %v", s.Name, s.problem))
		}
	}
	return strings.Join(all, "; ")
}

// Opened fails until a pool is open or all were tried. After that, a pool out of reach is not a failure of this
// process, even if it is the only pool: a restart would not help.
func (b *Backend) Opened(context.Context) error {
	if out := b.outOfReach(); out != "" && len(b.pools()) == 0 && !b.tried.Load() {
		return errors.New(out)
	}
	return nil
}

// notFound returns the error that no open pool has an entry.
func (b *Backend) notFound(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{backend.ErrNotFound}, args...)...)
	if out := b.outOfReach(); out != "" {
		return &notSeenError{fmt.Errorf("%w; %s", err, out)}
	}
	return err
}

// notSeenError is an ErrNotFound about an entry that may be in a pool that is out of reach, and thus also an
// ErrUnavailable.
type notSeenError struct{ error }

func (n *notSeenError) Unwrap() []error { return []error{n.error, backend.ErrUnavailable} }

// lacks returns the error about an entry that an operation needs and that no open pool has.
func (b *Backend) lacks(format string, args ...any) error {
	return cmp.Or(b.absent(format, args...), b.notFound(format, args...))
}

// absent returns whether an entry that was not found certainly does not exist. Otherwise the error names the pools that
// may have it.
func (b *Backend) absent(format string, args ...any) error {
	err := b.notFound(format, args...)
	if _, perhaps := errors.AsType[*notSeenError](err); perhaps {
		return fmt.Errorf("%w: it cannot be checked now whether it exists: %v", backend.ErrUnavailable, err)
	}
	return nil
}

// pool returns a pool by name; the empty name is the default pool. An unknown name is an error of the given kind.
func (b *Backend) pool(name string, kind error) (*pool, error) {
	s, err := b.slot(name, kind)
	if err != nil {
		return nil, err
	}
	if p := b.opened(s); p != nil && b.checkPlace(p) {
		return p, nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	// The cause must not be wrapped: its sentinel would be about the pool, not about the request.
	err = fmt.Errorf("%w: pool %s: %v", backend.ErrUnavailable, s.Name, s.problem)
	return nil, backend.BecauseOf(backend.PoolReasonOf(s.problem), err)
}

func (b *Backend) slot(name string, kind error) (*slot, error) {
	var names []string
	for _, s := range b.slots {
		if name == "" || s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: this host has no pool", kind)
	}
	return nil, fmt.Errorf("%w: pool %s; the pools of this host are: %s", kind, backend.Quote(name), strings.Join(names, ", "))
}
