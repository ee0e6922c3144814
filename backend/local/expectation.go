package local

import (
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
)

// ExpectPool sets what the cluster remembers of a pool.
func (b *Backend) ExpectPool(name string, e backend.PoolExpectation) {
	if b.expect(name, e) {
		b.notify()
	}
}

func (b *Backend) expect(name string, e backend.PoolExpectation) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.slots {
		if s.Name != name || !s.expects(e) {
			continue
		}
		if p := s.pool; p != nil {
			if err := matches(s.Expect, p.identity()); err != nil {
				b.markOutOfReach(s, err)
			}
		}
		b.retryNow()
		taken = true
	}
	return taken
}

// expects sets the expectation of a pool, unless this process has a newer one.
func (s *slot) expects(e backend.PoolExpectation) bool {
	switch {
	case s.Expect.Unread:
		seen := s.Expect.PoolIdentity // by this process, before the record of the cluster could be read
		s.Expect = e
		if e.Given == "" && (e.ID == "" || e.ID == seen.ID) && seen.Generation >= e.Generation {
			s.Expect.PoolIdentity = seen
		}
		return true
	case e.Given != "" && s.pool == nil && s.Expect.Remembered() == e.Given:
		s.Expect = e
		return true
	}
	s.Expect.Remedy = e.Remedy // this process has seen the pool itself, which is newer
	return false
}

// NotifyPools sets the function to call when a pool is opened or goes out of reach.
func (b *Backend) NotifyPools(changed func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = changed
}

func (b *Backend) notify() {
	b.mu.RLock()
	changed := b.changed
	b.mu.RUnlock()
	if changed != nil {
		changed()
	}
}

// retryNow retries at once the pools that are out of reach.
func (b *Backend) retryNow() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// hold prevents the open pools from being closed until release is called.
func (b *Backend) hold() (release func()) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var held []*pool
	for _, s := range b.slots {
		if s.pool != nil {
			s.pool.users.Add(1)
			held = append(held, s.pool)
		}
	}
	return func() {
		for _, p := range held {
			p.users.Add(-1)
		}
	}
}

// holdPool prevents an open pool from being closed until its users are decremented.
func (b *Backend) holdPool(p *pool) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	open := slices.ContainsFunc(b.slots, func(s *slot) bool { return s.pool == p })
	if open {
		p.users.Add(1)
	}
	return open
}

// checkPlace returns whether a pool is still at the path where it was opened. Otherwise it goes out of reach, and
// exactly this pool is expected at the path.
func (b *Backend) checkPlace(p *pool) bool {
	why := p.gone()
	if why == nil {
		return true
	}
	b.mu.Lock()
	i := slices.IndexFunc(b.slots, func(s *slot) bool { return s.pool == p })
	if i >= 0 {
		s := b.slots[i]
		s.Expect.PoolIdentity, s.Expect.Empty, s.Expect.Given = p.identity(), p.holdsNothing(), ""
		b.markOutOfReach(s, why)
	}
	b.mu.Unlock()
	if i >= 0 {
		b.notify()
	}
	return false
}

// markOutOfReach marks a pool as out of reach, so that no operation starts in it. b.mu must be held.
func (b *Backend) markOutOfReach(s *slot, why error) {
	b.log.Warn("a pool is out of reach", "pool", s.Name, "error", why)
	s.pool, s.leaving, s.problem = nil, s.pool, why
}

// closeLeaving closes a pool that is out of reach once no operation runs in it, and returns whether it did. Until then
// its lock prevents that it is opened again.
func (b *Backend) closeLeaving(s *slot) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := s.leaving
	switch {
	case p == nil:
		return true
	case p.users.Load() > 0:
		b.log.Info("operations still run in a pool that went out of reach; it is opened again after them", "pool", s.Name)
		return false
	}
	s.leaving = nil
	if err := p.close(); err != nil {
		b.log.Warn("closing a pool that went out of reach", "pool", s.Name, "error", err)
	}
	return true
}

// countLate records the opening of a pool that could not be written at that time.
func (b *Backend) countLate(s *slot, p *pool) {
	b.mu.RLock()
	unread := s.Expect.Unread
	b.mu.RUnlock()
	if unread || p.counted.Load() {
		return
	}
	if err := p.tryCount(); err != nil {
		b.log.Warn("a pool cannot record that it was opened; retrying", "pool", p.Name, "error", err)
		return
	}
	b.notify()
}
