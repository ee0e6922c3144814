package local

import (
	"context"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// VolumeTraffic is what the kernel has counted of a volume.
type VolumeTraffic struct {
	ID   backend.ID
	Pool string
	nodeops.Traffic
}

// Traffic is what was read and written of volumes that are in use on this host, as far as the kernel counts for them: it
// does for images, and not for directories. A pool that does not answer until ctx ends is left out.
func (b *Backend) Traffic(ctx context.Context) (all []VolumeTraffic) {
	for _, p := range b.pools() {
		for id, t := range b.trafficOf(ctx, p) {
			all = append(all, VolumeTraffic{id, p.Name, t})
		}
	}
	return all
}

// trafficOf asks devices, one of which may hang: then no more are asked until it answers. Callers at the same time share
// the answer.
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
