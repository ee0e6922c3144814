package cluster

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// liveness tracks which agents are alive by their Leases. From the second renewal on it uses this process's clock, so a
// node with a wrong clock counts as down for at most one renewal.
type liveness struct {
	changed func(node string) // called when a node appears or becomes silent

	mu    sync.Mutex
	since time.Time        // since when this process receives all writes
	beats map[string]*beat // also of Leases that were deleted: for how long a node is silent is known even so
}

type beat struct {
	renewed time.Time // as the agent wrote it
	heard   time.Time // as this process saw it
	until   time.Time
	lasts   time.Duration
	timer   *time.Timer
}

const defaultLease = 40 * time.Second

func newLiveness(changed func(string)) *liveness {
	return &liveness{changed: changed, since: time.Now(), beats: map[string]*beat{}}
}

// disconnected is called when the watch fails: then all nodes seem silent. It is also called when all Leases were seen first: a
// node without one has been silent since then.
func (p *liveness) disconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
}

// doubt returns how long to wait until the silence of a node is the node's fault. Agents that lost the API server together
// with this process need time to renew their Leases.
func (p *liveness) doubt(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.beats[node]
	if b == nil {
		return 0
	}
	return max(0, time.Until(p.since.Add(2*b.lasts)))
}

// saw records a Lease, if it is an agent's.
func (p *liveness) saw(lease *coordination.Lease) {
	node, ok := strings.CutPrefix(lease.Name, v1beta1.LeasePrefix)
	if !ok || lease.Spec.RenewTime == nil {
		return
	}
	lasts := defaultLease
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		lasts = time.Duration(*s) * time.Second
	}
	renewed := lease.Spec.RenewTime.Time
	if p.beat(node, renewed, lasts) {
		p.changed(node)
	}
}

// beat records a renewal, and says whether the node was down before.
func (p *liveness) beat(node string, renewed time.Time, lasts time.Duration) (back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b := p.beats[node]
	switch {
	case b == nil:
		b = &beat{heard: renewed, until: renewed.Add(lasts)}
		p.beats[node] = b
	case !renewed.Equal(b.renewed):
		b.timer.Stop()
		back = !now.Before(b.until)
		b.heard, b.until = now, now.Add(lasts)
	default:
		return false
	}
	b.renewed, b.lasts = renewed, lasts
	b.timer = time.AfterFunc(time.Until(b.until), func() { p.changed(node) })
	return back
}

// deleted is called when a Lease is deleted. The agent of a node that works makes it again at once.
func (p *liveness) deleted(lease string) {
	node, ok := strings.CutPrefix(lease, v1beta1.LeasePrefix)
	if !ok {
		return
	}
	p.mu.Lock()
	if b, now := p.beats[node], time.Now(); b != nil && now.Before(b.until) {
		b.timer.Stop()
		b.until = now
	}
	p.mu.Unlock()
	p.changed(node)
}

// down says why nothing can be done on a node now; empty means that its agent is alive.
func (p *liveness) down(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.beats[node]
	switch {
	case b == nil:
		return "no agent has renewed its Lease there"
	case time.Now().Before(b.until):
		return ""
	}
	return fmt.Sprintf("its agent last renewed its Lease %s ago", time.Since(b.heard).Round(time.Second))
}

// last returns when a node last renewed its Lease, zero if never.
func (p *liveness) last(node string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.beats[node], &beat{}).heard
}

// silent returns for how long this process has heard nothing of an agent that it could have heard; 0 while the agent is
// alive. Of one without a Lease, which may have been deleted before this process began, it has heard nothing at all.
func (p *liveness) silent(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now, last := p.beats[node], time.Now(), p.since
	switch {
	case b == nil:
	case now.Before(b.until):
		return 0
	case b.heard.After(last):
		last = b.heard
	}
	return max(0, now.Sub(last))
}

// WhyDown says why nothing can be done on a node or server now; it is empty while its agent is alive.
func (b *Backend) WhyDown(node string) string { return b.liveness.down(node) }

// InDoubt returns how long the silence of a node may still be due to this process.
func (b *Backend) InDoubt(node string) time.Duration { return b.liveness.doubt(node) }

// LastHeardOf returns when the agent of a node last renewed its Lease, zero if never.
func (b *Backend) LastHeardOf(node string) time.Time { return b.liveness.last(node) }

// SilentFor returns for how long the agent of a node has been silent while this process could have heard it.
func (b *Backend) SilentFor(node string) time.Duration { return b.liveness.silent(node) }

func (p *liveness) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.beats {
		b.timer.Stop()
	}
}
