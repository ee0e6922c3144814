package local

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Trash is evicted when its space is needed: it never makes a promise fail, and never fills the file system.

// makeRoom makes a promise that fits only if trash is removed, and removes the oldest entries until it fits. If
// removing all trash would not suffice, it removes nothing.
func (p *pool) makeRoom(ctx context.Context, r *record) error {
	p.evicting.Lock()
	defer p.evicting.Unlock()
	p.measureFreeable()
	usage, err := p.measure(ctx)
	if err != nil {
		return err
	}
	if kept := p.trashInodes(); lacksInodes(usage, r.inodes()-kept) {
		return p.withoutInodes(usage, r)
	}
	p.mu.Lock()
	if r.charge > p.capacity(usage).Available {
		defer p.mu.Unlock()
		return p.exhausted(usage, r)
	}
	p.building[r.place] = r // from now on no other promise gets the freed space
	p.mu.Unlock()
	for expected := usage.Available; ; {
		victim, done, err := p.next(ctx, r, expected)
		if err != nil {
			p.forget(r)
			return err
		}
		if done {
			return nil
		}
		p.log.Info("a deleted volume is removed early: its space is needed", "volume", victim.id, "for", r.id, "bytes", r.charge)
		expected += victim.freeable
		p.purgeClaimed(ctx, victim)
	}
}

// next returns done if the promise fits now, and otherwise claims the next entry to remove. expected is the free space
// that the removals so far should have produced.
func (p *pool) next(ctx context.Context, r *record, expected int64) (victim *record, done bool, err error) {
	usage, err := p.measure(ctx)
	if err != nil {
		return nil, false, err
	}
	fits := func(free int64) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return r.charge <= p.promisable(usage, free, p.promised()-r.charge)
	}
	if expected > usage.Available && !fits(usage.Available) && fits(expected) {
		if usage, err = p.awaitFree(ctx, expected); err != nil {
			return nil, false, err
		}
	}
	short := lacksInodes(usage, r.inodes())
	if fits(usage.Available) && !short {
		return nil, true, nil
	}
	onlySpace := !short && fits(usage.Used+usage.Available)
	if onlySpace {
		p.measureFreeable() // blocks that it shared with a removed volume are now exclusive
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if victim = p.claimOldest(onlySpace); victim == nil {
		delete(p.building, r.place)
		if short {
			return nil, false, p.withoutInodes(usage, r)
		}
		return nil, false, p.exhausted(usage, r)
	}
	return victim, false, nil
}

// claimOldest claims the entry that was deleted first; with givesSpace, the first whose removal frees space. p.mu must
// be held.
func (p *pool) claimOldest(givesSpace bool) *record {
	var oldest *record
	for _, r := range p.trash {
		if r.kind == volumes && (!givesSpace || r.freeable > 0) && (oldest == nil || r.deleted.Before(oldest.deleted)) {
			oldest = r
		}
	}
	if oldest == nil {
		return nil
	}
	return p.claimLocked(oldest)
}

// evictForReserve removes trash while the file system has less free space than the pool's reserve.
func (p *pool) evictForReserve(ctx context.Context) error {
	p.evicting.Lock()
	defer p.evicting.Unlock()
	for {
		if err := p.usable(); err != nil {
			return err // otherwise another file system would be measured
		}
		usage, err := p.measure(ctx)
		if err != nil {
			return err
		}
		low := max(p.reserve.Of(usage.Used+usage.Available), backend.SizeUnit)
		short := lacksInodes(usage, usage.Inodes/sparesInodes)
		if usage.Available >= low && !short {
			return nil
		}
		p.mu.Lock()
		victim := p.claimOldest(!short)
		p.mu.Unlock()
		if victim == nil {
			return nil
		}
		p.log.Warn("a deleted volume is removed early: the file system runs full", "volume", victim.id, "free", usage.Available, "reserved", low, "inodes", usage.InodesFree)
		p.purgeClaimed(ctx, victim)
		if _, err := p.awaitFree(ctx, min(low, usage.Available+victim.freeable)); err != nil {
			return err
		}
	}
}

// How long the kernel may take to free blocks of removed files, which xfs and btrfs do in the background.
const (
	freedWithin = 5 * time.Second
	freedLook   = 50 * time.Millisecond
)

// awaitFree waits until that much space is free, or until it must be assumed that others have used it.
func (p *pool) awaitFree(ctx context.Context, expected int64) (nodeops.FSUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, freedWithin)
	defer cancel()
	look := time.NewTicker(freedLook)
	defer look.Stop()
	for {
		if err := unix.Syncfs(int(p.dir.Fd())); err != nil {
			p.log.Warn("the file system cannot be synced", "error", err)
		}
		usage, err := p.measure(context.WithoutCancel(ctx))
		if err != nil || usage.Available >= expected {
			return usage, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return usage, nil
		}
	}
}

// trashTotal returns what removing all trash would release: promised size and free space. p.mu must be held.
func (p *pool) trashTotal() (charge, gives int64) {
	for _, r := range p.trash {
		charge += r.charge
		gives += r.freeable
	}
	return charge, gives
}

// measureFreeable updates how much space the removal of each entry of the trash would free.
func (p *pool) measureFreeable() {
	for _, r := range p.trashed() {
		if used, _, _ := p.inspect(r); r.freeable < used {
			p.raiseFreeable(r, p.measureFreeableOf(r))
		}
	}
}

// raiseFreeable records how much space the removal of an entry would free, which only increases.
func (p *pool) raiseFreeable(r *record, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.trash[r.place]; now != nil && now.freeable < bytes {
		more := *now
		more.freeable = bytes
		p.trash[r.place] = &more
	}
}

// measureFreeableOf returns the space that the removal of a volume frees at least: its exclusive blocks.
func (p *pool) measureFreeableOf(r *record) int64 {
	e, err := p.entry(r)
	if err != nil {
		return 0 // it is damaged; its promised size is released anyway
	}
	defer e.Dir.Close()
	if p.hasNoCopies(r) {
		used, _ := p.engine.Inspect(e)
		return used
	}
	bytes, err := p.engine.Unshared(e)
	if err != nil {
		p.log.Warn("the space that a deleted volume would free cannot be measured", "volume", r.id, "error", err)
	}
	return bytes
}

// hasNoCopies returns whether r cannot share blocks: it is not a copy and has no copies.
func (p *pool) hasNoCopies(r *record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.meta.Source != nil || len(p.entries[snapshots]) > 0 {
		return false
	}
	for _, other := range p.entries[volumes] {
		if other.meta == nil || other.meta.Source != nil {
			return false
		}
	}
	for _, other := range p.building {
		if other.kind != volumes || other.meta == nil || other.meta.Source != nil {
			return false
		}
	}
	return true
}
