//go:build ceph

package rbd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

func (s *session) monitor(command map[string]any, into any) error {
	command["format"] = "json"
	text, said, err := s.conn.MonCommand(encode(command))
	if err != nil {
		return fmt.Errorf("ceph %s: %w (%s)", command["prefix"], err, said)
	}
	return json.Unmarshal(text, into)
}

func (s *session) measure() (r room, err error) {
	pool := cmp.Or(s.config.DataPool, s.config.Pool)
	var df struct {
		Pools []struct {
			Name  string
			Stats struct {
				Stored int64
				Free   int64 `json:"max_avail"`
			}
		}
	}
	if err := s.monitor(map[string]any{"prefix": "df"}, &df); err != nil {
		return r, err
	}
	for _, p := range df.Pools {
		if p.Name == pool {
			r.stored, r.free = p.Stats.Stored, p.Stats.Free
		}
	}
	var quota struct {
		Bytes int64 `json:"quota_max_bytes"`
	}
	if err := s.monitor(map[string]any{"prefix": "osd pool get-quota", "pool": pool}, &quota); err != nil {
		return r, err
	}
	r.quota = quota.Bytes
	return r, nil
}

// available is what can be promised where that much is promised.
func (b *Backend) available(r room, promised int64) int64 {
	return r.available(b.kept(r), b.Overcommit, promised)
}

// kept is what stays free.
func (b *Backend) kept(r room) int64 {
	keep, _ := ceph.ParseReserve(b.Reserved) // complete has checked it
	return keep.Of(r.total())
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
		r, err := s.measure()
		if err != nil {
			return nil, err
		}
		refused := false
		err = s.ledger.change(map[string]*promise{key: p}, func(promised, more int64) error {
			left := b.available(r, promised)
			if more <= 0 || more <= left {
				return nil
			}
			refused = true
			short = &shortage{more - left, fmt.Sprintf(
				"%s needs %d bytes of pool %s, %d are available (total %d, stored %d, promised %d, reserved %d, overcommit %g); delete volumes or snapshots, raise the pool's quota, add disks to the cluster, or raise overcommit",
				key, more, b.Name, left, r.total(), r.stored, promised, b.kept(r), b.Overcommit)}
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
		r, err := s.measure()
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
		left := b.available(r, promised-gives)
		return backend.Capacity{Total: r.total(), Promised: promised, Used: r.stored, Available: left, Smallest: sizeUnit, Largest: left}, nil
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
