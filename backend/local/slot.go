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

// Site is a pool whose directory may have to be created or mounted first.
type Site struct {
	PoolConfig
	// Reach creates or mounts the directory, before each attempt to open the pool. It creates nothing if another pool is
	// expected. Nil: the directory exists.
	Reach func(context.Context, backend.PoolExpectation) error
}

// slot is a configured pool, in reach or not. Backend.mu guards the fields that change, which include the expectation in
// the site.
type slot struct {
	Site
	pool    *pool // nil while it is out of reach
	leaving *pool // went out of reach, and is closed when nothing runs in it
	problem error // why it is out of reach
}

const (
	// seekEvery is how often a pool that is out of reach is retried.
	seekEvery = 10 * time.Second
	// seekFirst is how long a start waits for pools that do not answer at all.
	seekFirst = 10 * time.Second
)

// OpenReachable is Open for pools that may be out of reach: such a pool returns ErrUnavailable with the reason, and is
// retried until it is in reach. An empty list of pools is valid.
func OpenReachable(ctx context.Context, sites []Site, log *slog.Logger) *Backend {
	b := newBackend(log)
	for _, s := range sites {
		b.slots = append(b.slots, &slot{Site: s, problem: errors.New("it is being opened")})
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

// seek tries to open the pools that are out of reach, in their order, and checks the others. It closes first after the
// first round.
func (b *Backend) seek(ctx context.Context, first chan<- struct{}) {
	tick := time.NewTicker(seekEvery)
	defer tick.Stop()
	for b.tryAll(ctx); ; b.tryAll(ctx) {
		b.tried.Store(ctx.Err() == nil)
		if first != nil {
			close(first)
			first = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.wake:
		}
	}
}

func (b *Backend) tryAll(ctx context.Context) {
	b.trying.Lock()
	defer b.trying.Unlock()
	for _, s := range b.slots {
		if ctx.Err() != nil {
			return
		}
		if p := b.opened(s); p != nil && b.there(p) {
			b.countLate(s, p)
			continue
		}
		b.tryOne(ctx, s)
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
	if !b.left(s) {
		return
	}
	p, err := b.reach(ctx, s, c)
	switch {
	case err == nil:
		b.log.Info("pool opened", "pool", s.Name, "path", s.Path, "id", p.head.UUID, "generation", p.head.Generation)
	case before == nil || before.Error() != err.Error():
		b.log.Warn("a pool is out of reach", "pool", s.Name, "error", err)
	}
	b.mu.Lock()
	c.Expect.Remedy = s.Expect.Remedy // which is only for messages
	switch {
	case err != nil:
		s.problem = err
	case s.Expect != c.Expect: // the expected pool was changed in between: the next attempt uses it
		s.leaving, s.problem = p, errors.New("it is being opened")
		b.again()
	default:
		s.pool, s.problem = p, nil
	}
	b.mu.Unlock()
	if err == nil || before == nil || before.Error() != err.Error() {
		b.tell()
	}
}

// reach opens one pool as Open does all.
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

// pools returns those that are open.
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

// outOfReach names the pools that are out of reach and why, so that their volumes are not treated as gone; empty if all
// are open.
func (b *Backend) outOfReach() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []string
	for _, s := range b.slots {
		if s.pool == nil {
			all = append(all, fmt.Sprintf("pool %s is out of reach: %v", s.Name, s.problem))
		}
	}
	return strings.Join(all, "; ")
}

// Opened fails while no pool is open and not all were tried. After that, a pool that is out of reach is no failure of this
// process, even if it is the only one: a new process could not open it either.
func (b *Backend) Opened(context.Context) error {
	if out := b.outOfReach(); out != "" && len(b.pools()) == 0 && !b.tried.Load() {
		return errors.New(out)
	}
	return nil
}

// notFound says that something is in no pool that is open.
func (b *Backend) notFound(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{backend.ErrNotFound}, args...)...)
	if out := b.outOfReach(); out != "" {
		return &notSeenError{fmt.Errorf("%w; %s", err, out)}
	}
	return err
}

// notSeenError is an ErrNotFound about an entry that may be in a pool that is out of reach: it is an ErrUnavailable too.
type notSeenError struct{ error }

func (n *notSeenError) Unwrap() []error { return []error{n.error, backend.ErrUnavailable} }

// lacks is the error about an entry that an operation needs and that is in no open pool.
func (b *Backend) lacks(format string, args ...any) error {
	return cmp.Or(b.absent(format, args...), b.notFound(format, args...))
}

// absent says whether an entry that was not found certainly does not exist. An error says in which pool it may be.
func (b *Backend) absent(format string, args ...any) error {
	err := b.notFound(format, args...)
	if _, perhaps := errors.AsType[*notSeenError](err); perhaps {
		return fmt.Errorf("%w: it cannot be checked now whether it exists: %v", backend.ErrUnavailable, err)
	}
	return nil
}

// pool finds a pool by name; the first is the default. An unknown name is an error of the given kind.
func (b *Backend) pool(name string, kind error) (*pool, error) {
	s, err := b.slot(name, kind)
	if err != nil {
		return nil, err
	}
	if p := b.opened(s); p != nil && b.there(p) {
		return p, nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	// Whatever the problem is, it says nothing about the request.
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
