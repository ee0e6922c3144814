package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// Site is a pool that may have to be brought about.
type Site struct {
	PoolConfig
	// Reach makes the directory or mounts it, each time before it is tried to open the pool. Nil: it is there.
	Reach func(context.Context) error
}

// slot is the place of a pool that is configured, whether the pool can be reached or not. Backend.mu guards what changes.
type slot struct {
	Site
	pool    *pool // nil while it is out of reach
	problem error // why it is
}

const (
	// seekEvery is how often a pool that is out of reach is tried again.
	seekEvery = 10 * time.Second
	// seekFirst is how long a start waits for pools that do not answer at all.
	seekFirst = 10 * time.Second
)

// OpenReachable is Open for pools each of which may be out of reach: it then answers ErrUnavailable with the reason, and
// is tried again until it is there. No pool at all is fine.
func OpenReachable(ctx context.Context, sites []Site, log *slog.Logger) *Backend {
	b := &Backend{log: log}
	for _, s := range sites {
		b.slots = append(b.slots, &slot{Site: s, problem: errors.New("it is being opened")})
	}
	keeping := b.begin(ctx)
	first := make(chan struct{})
	b.keepers.Go(func() { b.seek(keeping, first) })
	late := time.NewTimer(seekFirst)
	defer late.Stop()
	select {
	case <-first:
	case <-late.C:
	case <-ctx.Done():
	}
	return b
}

// seek tries the pools that are out of reach, in their order, until there are none, and closes first after the first time.
func (b *Backend) seek(ctx context.Context, first chan<- struct{}) {
	tick := time.NewTicker(seekEvery)
	defer tick.Stop()
	for b.tryAll(ctx); ; b.tryAll(ctx) {
		if first != nil {
			close(first)
			first = nil
		}
		if b.outOfReach() == "" {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *Backend) tryAll(ctx context.Context) {
	for _, s := range b.slots {
		b.mu.RLock()
		open, before := s.pool != nil, s.problem
		b.mu.RUnlock()
		if open || ctx.Err() != nil {
			continue
		}
		p, err := b.reach(ctx, s)
		switch {
		case err == nil:
			b.log.Info("pool opened", "pool", s.Name, "path", s.Path)
		case before == nil || before.Error() != err.Error():
			b.log.Warn("a pool is out of reach", "pool", s.Name, "error", err)
		}
		b.mu.Lock()
		s.pool, s.problem = p, err
		b.mu.Unlock()
	}
}

// reach opens one pool as Open does all.
func (b *Backend) reach(ctx context.Context, s *slot) (p *pool, err error) {
	i := slices.Index(b.slots, s)
	if j := slices.IndexFunc(b.slots, func(o *slot) bool { return o.shares(s.PoolConfig) }); j < i {
		return nil, fmt.Errorf("it shares its name or path with pool %s (%s); give it others", b.slots[j].Name, b.slots[j].Path)
	}
	if s.Reach != nil {
		if err := s.Reach(ctx); err != nil {
			return nil, err
		}
	}
	if p, err = openPool(ctx, s.PoolConfig, b.log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err, p = errors.Join(err, p.close()), nil
		}
	}()
	if err := p.lock(ctx); err != nil {
		return p, err
	}
	if err := p.recover(ctx); err != nil {
		return p, err
	}
	b.sweepGroups(ctx, p)
	return p, p.survey(ctx)
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

// outOfReach says which pools are and why, so that nobody takes what lies in them for gone; empty if all are open.
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

// notFound says that something is in no pool that is open.
func (b *Backend) notFound(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{backend.ErrNotFound}, args...)...)
	if out := b.outOfReach(); out != "" {
		return fmt.Errorf("%w; %s", err, out)
	}
	return err
}

// pool finds a pool by name; the first is the default. An unknown name is an error of the given kind.
func (b *Backend) pool(name string, kind error) (*pool, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var names []string
	for _, s := range b.slots {
		switch {
		case name != "" && s.Name != name:
			names = append(names, s.Name)
		case s.pool == nil: // whatever the problem is, it says nothing about the request
			return nil, fmt.Errorf("%w: pool %s: %v", backend.ErrUnavailable, s.Name, s.problem)
		default:
			return s.pool, nil
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: this host has no pool", kind)
	}
	return nil, fmt.Errorf("%w: pool %s; the pools of this host are: %s", kind, backend.Quote(name), strings.Join(names, ", "))
}
