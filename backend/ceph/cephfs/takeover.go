//go:build ceph

package cephfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// retakeAfter is how long a process that took the pool must be silent before the one from which it was taken takes it
// back: of two that serve one pool by mistake, one is to stay out. By the clocks of their
// hosts: with a difference of a minute they take it from each other, each time with all that the other has begun.
const retakeAfter = 6 * tidyEvery

// mayTake says no when this process had the pool, and another one has taken it.
func (b *Backend) mayTake(ctx context.Context) error {
	b.mu.Lock()
	taken := b.taken
	b.mu.Unlock()
	if !taken {
		return nil
	}
	p, err := b.enter(ctx, false)
	if err != nil {
		return err
	}
	o, err := look(ctx, p, "asking who has the pool", (*group).owner)
	if err := errors.Join(err, p.close(ctx)); err != nil {
		return err
	}
	if o.Token == b.token || time.Since(o.Seen) > retakeAfter {
		return nil
	}
	return fmt.Errorf("%w: pool %s: a process on host %s has taken it over, and was there at %s; only one may serve a pool: stop that one or this one. When that one has been silent for %s, this one takes the pool back",
		backend.ErrUnavailable, b.config.Name, backend.Quote(o.Host), o.Seen.Format(time.RFC3339), retakeAfter)
}

// own says that this process has the pool. No other can say so while it has.
func (p *pool) own(ctx context.Context, token string) error {
	host, _ := os.Hostname() // for messages only
	return p.touch(ctx, "noting who serves the pool", func(g *group) error {
		return g.set(g.dir, ownerAttr, ownerMeta{Token: token, Host: cmp.Or(host, "unknown"), Seen: time.Now().UTC()})
	})
}

// owner is the process that took the pool last.
func (g *group) owner() (o ownerMeta, err error) {
	data, err := g.attr(g.dir, ownerAttr)
	if err != nil || data == nil {
		return o, err
	}
	return o, unmarshal(data, ownerAttr, &o)
}
