//go:build ceph

package cephfs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// sizeUnit is what sizes are rounded up to.
const sizeUnit = 1 << 20

// usage is what the cluster says of the pool's data.
type usage struct {
	stored int64 // by anyone in the data pool
	free   int64 // for more data, copies not counted
	limit  int64 // of what may be stored; 0: none
}

func (u usage) total() int64 {
	total := u.stored + u.free
	if u.limit > 0 {
		total = min(total, u.limit)
	}
	return total
}

// left is what can be written now.
func (u usage) left() int64 { return max(0, min(u.free, u.total()-u.stored)) }

// gift is what a removal frees, which the cluster reports only later.
type gift struct {
	bytes int64
	until time.Time
}

// giftLasts is how long the manager may take to remove what was deleted, and to report it.
const giftLasts = time.Minute

// survey is the pool as it was measured for one decision.
type survey struct {
	usage
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

func (g *group) survey(u usage) (s *survey, err error) {
	s = &survey{usage: u}
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
	others := max(0, s.stored-s.own)
	if s.limit == 0 || others+quota < s.limit {
		s.limit = others + quota
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
func (s *survey) foreign() int64 { return max(0, s.stored-s.own) }

// room is what can be promised where that much is promised, by the formula of docs/capacity.md.
func (p *pool) room(s *survey, free, promised int64) int64 {
	total := s.total()
	kept := p.reserve.Of(total)
	byPromise := int64(float64(total-s.foreign())*p.Overcommit) - kept - promised
	byFreeSpace := int64(float64(free)*p.Overcommit) - kept
	return max(0, min(byPromise, byFreeSpace)) / sizeUnit * sizeUnit
}

// capacity counts as available what the trash would give.
func (p *pool) capacity(s *survey, gives int64) backend.Capacity {
	available := p.room(s, s.left()+gives, s.promised-s.kept)
	return backend.Capacity{
		Total: s.total(), Promised: s.promised, Used: s.stored, Available: available, Smallest: sizeUnit, Largest: available,
		Identity: backend.PoolIdentity{ID: p.id},
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
	if bytes > p.room(s, s.left()+p.gifts(), s.promised) {
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
			without = fmt.Sprintf(" even without the %d deleted volumes in the trash, which are kept", len(trash))
		}
		return fmt.Errorf("%w: %s needs %d bytes of pool %s, %d are available%s (total %d, promised %d, used by others %d, reserved %d, overcommit %g); delete volumes or snapshots, add disks to the cluster, raise the quota of the data pool or of the group if one is set, or raise overcommit",
			backend.ErrExhausted, id, bytes, p.Name, c.Available, without, c.Total, c.Promised, s.foreign(), p.reserve.Of(c.Total), p.Overcommit)
	}
	for _, t := range trash {
		if bytes <= p.room(s, s.left()+p.gifts(), s.promised) {
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

// measure asks the monitors for the state of the data pool.
func (p *pool) measure(ctx context.Context) (usage, error) {
	name, err := look(ctx, p, "reading the layout of the group", func(g *group) ([]byte, error) { return g.attr(g.dir, "ceph.dir.layout.pool") })
	if err != nil {
		return usage{}, err
	}
	text, err := ceph.Call(ctx, p.cluster, "asking the monitors for free space", func(conn *rados.Conn) ([]byte, error) {
		text, _, err := conn.MonCommand([]byte(`{"prefix": "df", "detail": "detail", "format": "json"}`))
		return text, err
	})
	if err != nil {
		return usage{}, p.judge(err)
	}
	return parseUsage(text, string(name))
}

func parseUsage(text []byte, pool string) (usage, error) {
	var answer struct {
		Pools []struct {
			Name  string `json:"name"`
			Stats struct {
				Stored int64 `json:"stored"`
				Free   int64 `json:"max_avail"`
				Quota  int64 `json:"quota_bytes"`
			} `json:"stats"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return usage{}, fmt.Errorf("%w: the monitors report free space in a form that is not known: %w", backend.ErrUnavailable, err)
	}
	for _, p := range answer.Pools {
		if p.Name == pool {
			return usage{stored: p.Stats.Stored, free: p.Stats.Free, limit: p.Stats.Quota}, nil
		}
	}
	return usage{}, fmt.Errorf("%w: the monitors report nothing of the data pool %s", backend.ErrUnavailable, backend.Quote(pool))
}
