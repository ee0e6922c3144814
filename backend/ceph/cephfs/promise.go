//go:build ceph

package cephfs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// gift is what a removal frees, which the cluster reports only later.
type gift struct {
	bytes int64
	until time.Time
}

// giftLasts is how long the manager may take to remove what was deleted, and to report it.
const giftLasts = time.Minute

// survey is the pool as it was measured for one decision.
type survey struct {
	ceph.Usage
	entries   []*entry
	begun     map[string]*meta
	strangers []string
	own       int64 // bytes of the data pool taken by the group
	kept      int64 // promised to the trash
	promised  int64
}

// survey reads what is promised and what is there.
func (p *pool) survey(ctx context.Context) (*survey, error) {
	u, err := p.measure(ctx)
	if err != nil {
		return nil, err
	}
	s, err := look(ctx, p, "reading the pool", func(g *group) (*survey, error) { return g.survey(u) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (g *group) survey(u ceph.Usage) (s *survey, err error) {
	s = &survey{Usage: u}
	// In this order: a volume that is completed during this is in one of both, or in both, and never in none.
	if s.begun, err = g.begun(); err != nil {
		return nil, err
	}
	if s.entries, s.strangers, err = g.entries(); err != nil {
		return nil, err
	}
	s.strangers = slices.DeleteFunc(s.strangers, func(name string) bool { _, ours := s.begun[name]; return ours })
	if s.own, err = g.number(g.dir, "ceph.dir.rbytes"); err != nil {
		return nil, err
	}
	for _, name := range s.strangers {
		bytes, err := g.number(g.base(name), "ceph.dir.rbytes")
		if err != nil && !gone(err) {
			return nil, err
		}
		s.own -= bytes
	}
	quota, err := g.number(g.dir, "ceph.quota.max_bytes")
	if err != nil {
		return nil, err
	}
	if quota > 0 {
		s.limitGroup(quota)
	}
	s.sum()
	return s, nil
}

// limitGroup counts the quota of the group as one of the pool: what others have in the pool is not in the group.
func (s *survey) limitGroup(quota int64) {
	if most := s.foreign() + quota; s.Quota == 0 || most < s.Quota {
		s.Quota = most
	}
}

// sum adds up what is promised. A volume that was just finished may still be listed as one in the making.
func (s *survey) sum() {
	counted := map[string]bool{}
	for _, e := range s.entries {
		if e.volume != nil {
			counted[e.name] = true
			s.promised += e.volume.Charge
			if e.volume.trashed() {
				s.kept += e.volume.Charge
			}
		}
		for _, snapshot := range e.snapshots {
			if snapshot.meta != nil {
				s.promised += snapshot.meta.Charge
				s.own += snapshot.meta.Charge // at most: it is not known what a snapshot alone keeps
			}
		}
	}
	for name, m := range s.begun {
		if m != nil && !counted[name] {
			s.promised += m.Charge
		}
	}
}

// foreign is data of others in the data pool.
func (s *survey) foreign() int64 { return max(0, s.Stored-s.own) }

// room is what can be promised where that much is promised, once some more is free.
func (p *pool) room(s *survey, more, promised int64) int64 {
	r := s.Room(s.foreign())
	r.Free += more
	return r.Promisable(p.Overcommit, p.reserve, promised)
}

// capacity counts as available what the trash would give.
func (p *pool) capacity(s *survey, gives int64) backend.Capacity {
	available := p.room(s, gives, s.promised-s.kept)
	return backend.Capacity{
		Total: s.Total(), Promised: s.promised, Used: s.Stored, Available: available, Smallest: backend.SizeUnit, Largest: available,
		Identity: backend.PoolIdentity{ID: p.id}, SnapshotCost: backend.SharesBlocks,
	}
}

// promise takes room for what add records, or says that there is none. Only this process promises room of the pool, since
// the file system shuts out all others, one promise after the other.
func (p *pool) promise(ctx context.Context, id backend.ID, bytes int64, add func() error) error {
	release, err := p.promises(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, err := p.survey(ctx)
	if err != nil {
		return err
	}
	if bytes > p.room(s, p.gifts(), s.promised) {
		if err := p.makeRoom(ctx, s, id, bytes); err != nil {
			return err
		}
	}
	return add()
}

// makeRoom removes deleted volumes, the oldest first, until bytes fit. Where all of them would not be enough, none is
// touched.
func (p *pool) makeRoom(ctx context.Context, s *survey, id backend.ID, bytes int64) error {
	trash, gives, err := p.trashOf(ctx, s)
	if err != nil {
		return err
	}
	if c := p.capacity(s, gives+p.gifts()); bytes > c.Available {
		without := ""
		if len(trash) > 0 {
			without = fmt.Sprintf(", even if the %d deleted volumes in the trash were removed", len(trash))
		}
		return fmt.Errorf("%w: %s needs %s of pool %s, and %s are free%s (%s in all, %s promised, %s other data, %s reserved, overcommit %g); delete volumes or snapshots, add disks to the cluster, raise the quota of the data pool or of the group if one is set, or raise overcommit",
			backend.ErrExhausted, id, backend.Readable(bytes), p.Name, backend.Readable(c.Available), without, backend.Readable(c.Total), backend.Readable(c.Promised),
			backend.Readable(s.foreign()), backend.Readable(p.reserve.Of(c.Total)), p.Overcommit)
	}
	for _, t := range trash {
		if bytes <= p.room(s, p.gifts(), s.promised) {
			return nil
		}
		p.log.Info("a deleted volume is removed early: its space is needed", "volume", t.id, "for", id, "bytes", bytes)
		if err := p.markRemoving(ctx, t.entry); err != nil {
			return err
		}
		if err := p.purge(ctx, t.entry); err != nil {
			return err
		}
		p.gave(t.bytes)
		s.promised -= t.volume.Charge
	}
	return nil
}

func (p *pool) gave(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freed = append(p.freed, gift{bytes, time.Now().Add(giftLasts)})
}

// gifts is what was removed, and may not be reported as free yet.
func (p *pool) gifts() (bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.freed = slices.DeleteFunc(p.freed, func(g gift) bool { return now.After(g.until) })
	for _, g := range p.freed {
		bytes += g.bytes
	}
	return bytes
}

// trashedEntry is a volume in the trash and what its removal frees.
type trashedEntry struct {
	*entry
	bytes int64
}

// trashOf returns the trash, the oldest first, and what its removal frees together. What snapshots keep is not freed.
func (p *pool) trashOf(ctx context.Context, s *survey) (trash []trashedEntry, gives int64, err error) {
	for _, e := range s.entries {
		if !e.volume.trashed() {
			continue
		}
		if used, err := p.usedSince(ctx, e); err != nil {
			return nil, 0, err
		} else if used {
			s.kept -= e.volume.Charge // it gives nothing
			continue
		}
		used, err := look(ctx, p, "measuring "+e.name, func(g *group) (int64, error) { return g.number(e.volume.Path, "ceph.dir.rbytes") })
		if err != nil && !gone(err) {
			return nil, 0, err
		}
		if len(e.snapshots) > 0 {
			used = 0
		}
		trash = append(trash, trashedEntry{e, used})
		gives += used
	}
	slices.SortFunc(trash, func(x, y trashedEntry) int { return x.volume.Deleted.Compare(*y.volume.Deleted) })
	return trash, gives, nil
}

// measure asks the monitors for the usage of the data pool.
func (p *pool) measure(ctx context.Context) (ceph.Usage, error) {
	name, err := look(ctx, p, "reading the layout of the group", func(g *group) ([]byte, error) { return g.attr(g.dir, "ceph.dir.layout.pool") })
	if err != nil {
		return ceph.Usage{}, err
	}
	u, err := ceph.Call(ctx, p.cluster, "asking the monitors for free space", func(conn *rados.Conn) (ceph.Usage, error) { return ceph.Measure(conn, string(name)) })
	if err != nil {
		return ceph.Usage{}, p.judge(err)
	}
	return u, nil
}
