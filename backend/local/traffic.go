package local

import (
	"context"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// VolumeTraffic has the I/O counters of a volume.
type VolumeTraffic struct {
	ID   backend.ID
	Pool string
	nodeops.Traffic
}

// Traffic returns the I/O counters of volumes in use on this host. The kernel counts for images, not for directories. A
// pool that does not answer before ctx ends is left out.
func (b *Backend) Traffic(ctx context.Context) (all []VolumeTraffic) {
	for _, p := range b.pools() {
		for id, t := range b.trafficOf(ctx, p) {
			all = append(all, VolumeTraffic{id, p.Name, t})
		}
	}
	return all
}

// trafficOf reads counters of devices, one of which may hang: no other call reads them until it answers. Concurrent
// callers share the result.
func (b *Backend) trafficOf(ctx context.Context, p *pool) map[backend.ID]nodeops.Traffic {
	meter, ok := p.engine.(engine.Meter)
	if !ok {
		return nil
	}
	answer := p.metering.DoChan("", func() (any, error) {
		if !b.holdPool(p) {
			return nil, nil
		}
		defer p.users.Add(-1)
		return meter.Traffic(p.contents()), nil
	})
	select {
	case got := <-answer:
		all, _ := got.Val.(map[backend.ID]nodeops.Traffic)
		return all
	case <-ctx.Done():
		return nil
	}
}
