//go:build ceph

package rbd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// measuredFor is how long what the monitors report is used. They get it from the disks every five seconds.
const measuredFor = 2 * time.Second

// measure measures once for all callers at the time.
func (s *session) measure() (_ ceph.Usage, err error) {
	s.measuring.Lock()
	defer s.measuring.Unlock()
	if time.Since(s.measured) > measuredFor {
		if s.usage, err = ceph.Measure(s.conn, cmp.Or(s.config.DataPool, s.config.Pool)); err == nil {
			s.measured = time.Now()
		}
	}
	return s.usage, err
}

// available is what can be promised where that much is promised. What others have stored counts only in what is free: it is not
// known how much that is.
func (b *Backend) available(u ceph.Usage, promised int64) int64 {
	return u.Room(0).Promisable(b.Overcommit, b.reserve(), promised)
}

func (b *Backend) reserve() backend.Reserve {
	keep, _ := backend.ParseReserve(b.Reserved) // complete has checked it
	return keep
}

// promise takes room for an image under a key of the ledger, and lets trash go where that is needed.
func (b *Backend) promise(ctx context.Context, key string, p *promise) error {
	short, err := b.tryPromise(ctx, key, p)
	if err != nil || short == nil {
		return err
	}
	b.giving.Lock()
	defer b.giving.Unlock()
	for {
		short, err := b.tryPromise(ctx, key, p)
		if err != nil || short == nil {
			return err
		}
		gone, err := b.giveWay(ctx, short)
		if err != nil {
			return err
		}
		if !gone {
			return short
		}
	}
}

// shortage says that a promise does not fit.
type shortage struct {
	missing int64 // that trash would have to give
	message string
}

func (s *shortage) Error() string { return backend.ErrExhausted.Error() + ": " + s.message }
func (s *shortage) Unwrap() error { return backend.ErrExhausted }

// tryPromise promises, or says what is missing.
func (b *Backend) tryPromise(ctx context.Context, key string, p *promise) (*shortage, error) {
	return call(ctx, b, "promising room to "+key, func(s *session) (short *shortage, err error) {
		u, err := s.measure()
		if err != nil {
			return nil, err
		}
		refused := false
		err = s.ledger.change(map[string]*promise{key: p}, func(promised, more int64) error {
			left := b.available(u, promised)
			if more <= 0 || more <= left {
				return nil
			}
			refused = true
			short = &shortage{more - left, fmt.Sprintf(
				"%s needs %s of pool %s, and %s are free (%s in all, %s stored, %s promised, %s reserved, overcommit %g); delete volumes or snapshots, raise the pool's quota, add disks to the cluster, or raise overcommit",
				key, backend.Readable(more), b.Name, backend.Readable(left), backend.Readable(u.Total()), backend.Readable(u.Stored), backend.Readable(promised),
				backend.Readable(b.reserve().Of(u.Total())), b.Overcommit)}
			return short
		})
		if refused {
			return short, nil
		}
		return nil, err
	})
}

func (b *Backend) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	if pool != "" && pool != b.Name {
		return backend.Capacity{}, fmt.Errorf("%w: pool %s; the pools are: %s", backend.ErrNotFound, backend.Quote(pool), b.Name)
	}
	return call(ctx, b, "measuring pool "+b.Name, func(s *session) (c backend.Capacity, err error) {
		u, err := s.measure()
		if err != nil {
			return c, err
		}
		promised, err := s.ledger.promised()
		if err != nil {
			return c, err
		}
		entries, err := s.ledger.all()
		if err != nil {
			return c, err
		}
		var gives int64
		for _, p := range entries {
			if p.State == trashed {
				gives += p.Charge
			}
		}
		left := b.available(u, promised-gives)
		return backend.Capacity{Total: u.Total(), Promised: promised, Used: u.Stored, Available: left, Smallest: backend.SizeUnit, Largest: left, SnapshotCost: backend.SharesBlocks}, nil
	})
}

// giveWay removes the volume that was deleted first, if the trash has enough to give.
func (b *Backend) giveWay(ctx context.Context, short *shortage) (gone bool, err error) {
	all, err := b.trash(ctx)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(t *discarded) bool { return t.shared || t.kept })
	var gives int64
	for _, t := range all {
		gives += t.Charge
	}
	if len(all) == 0 || gives < short.missing {
		return false, nil
	}
	slices.SortFunc(all, func(x, y *discarded) int { return x.deleted.Compare(y.deleted) })
	for _, oldest := range all {
		err := b.purge(ctx, oldest.image, oldest.name)
		if err == nil {
			b.log.Info("a deleted volume was removed early: its space is needed", "volume", oldest.id, "bytes", oldest.Charge)
		}
		if !errors.Is(err, backend.ErrPrecondition) {
			return true, err
		}
		if gives -= oldest.Charge; gives < short.missing { // it is in use, or being restored, and the others would go in vain
			return false, nil
		}
	}
	return false, nil
}
