package local

import (
	"cmp"
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// health has the last observed faults of volumes in use. pool.mu guards it.
type health struct {
	own    string // of the pool's file system
	ailing map[backend.ID]backend.Condition
	small  map[backend.ID]bool // volumes whose file system was smaller than the volume at the last check
}

// ObserveHealth records a fault that a user of a volume has reported.
func (b *Backend) ObserveHealth(id backend.ID, c backend.Condition) {
	for _, p := range b.pools() {
		if p.find(volumes, id) == nil {
			continue
		}
		if p.observe(map[backend.ID]backend.Condition{id: c}) {
			b.notify()
		}
		return
	}
}

// examinePool checks the volumes in use of a pool for errors.
func (b *Backend) examinePool(ctx context.Context, p *pool) {
	if p.examine(ctx) {
		b.notify()
	}
}

// examine checks the volumes in use and returns whether the condition of any has changed.
func (p *pool) examine(ctx context.Context) (changed bool) {
	own := p.ownErrors(ctx)
	p.mu.Lock()
	changed = (own == "") != (p.health.own == "")
	p.health.own = own
	p.mu.Unlock()
	examiner, ok := p.engine.(engine.Examiner)
	if !ok {
		return changed
	}
	seen := examiner.Examine(ctx, p.contents())
	p.doubtSmall(seen)
	return p.observe(seen) || changed
}

// contents returns the contents of the pool's volumes.
func (p *pool) contents() map[backend.ID]*engine.Content {
	all := map[backend.ID]*engine.Content{}
	for _, r := range p.each(volumes) {
		if r.meta != nil {
			all[r.id] = &r.meta.Content
		}
	}
	return all
}

// doubtSmall ignores that a file system is smaller than its volume when that is first observed: it may be growing after
// its mount. A volume that is known to be too small keeps its condition, which may name the cause.
func (p *pool) doubtSmall(seen map[backend.ID]backend.Condition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	small := map[backend.ID]bool{}
	for id, c := range seen {
		if c.Reason != backend.NotGrown {
			continue
		}
		small[id] = true
		switch was := p.health.ailing[id]; {
		case was.Reason == backend.NotGrown:
			seen[id] = was
		case !p.health.small[id]:
			delete(seen, id)
		}
	}
	p.health.small = small
}

// ownErrors returns the errors of the pool's file system.
func (p *pool) ownErrors(ctx context.Context) string {
	m, err := nodeops.MountOf(p.dir)
	if err != nil || m == nil {
		return ""
	}
	p.failed.Store(m.Failed)
	is := nodeops.FSHealth(ctx, m)
	return cmp.Or(is.Errors, is.Device)
}

// observe records the result of a check. An unhealthy volume stays unhealthy, even while it is not in use, until it is
// observed healthy.
func (p *pool) observe(seen map[backend.ID]backend.Condition) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range seen {
		was := p.health.ailing[id]
		changed = changed || was.Abnormal != c.Abnormal || was.Reason != c.Reason
		if c.Abnormal {
			p.health.ailing[id] = c
		} else {
			delete(p.health.ailing, id)
		}
	}
	for id := range p.health.ailing {
		if p.entries[volumes][id] == nil {
			delete(p.health.ailing, id)
		}
	}
	return changed
}

// conditionOf returns the condition of a volume, from its own file system or that of the pool.
func (p *pool) conditionOf(id backend.ID) backend.Condition {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.health.ailing[id]; c.Abnormal || p.Engine != "directory" {
		return c
	}
	return p.ownCondition()
}

// ownCondition returns the condition of the pool's file system. p.mu must be held.
func (p *pool) ownCondition() backend.Condition {
	if p.health.own == "" {
		return backend.Condition{}
	}
	return backend.Condition{
		Abnormal: true, Reason: backend.PoolErrors,
		Message: fmt.Sprintf("pool %s: %s; to unmount it drain the node and stop what uses it", p.Name, p.health.own),
	}
}

// healthCount returns the values of the metrics: 1 if the pool's file system is healthy, and the number of volumes per
// reason.
func (p *pool) healthCount() (healthy float64, ailing map[backend.HealthReason]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health.own == "" {
		healthy = 1
	}
	ailing = map[backend.HealthReason]int{backend.DeviceErrors: 0, backend.FileSystemErrors: 0, backend.NotGrown: 0}
	for _, c := range p.health.ailing {
		ailing[c.Reason]++
	}
	return healthy, ailing
}
