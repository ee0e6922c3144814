package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// knownPatience is how many times as long serveAll waits for a volume that was exported before.
const knownPatience = 10

// serveAll serves all existing volumes. It waits for one that hangs only for a limited time; that one continues in the
// background. The exporter starts when it returns. Clients wait for a server that has not started, but get ESTALE, and lose
// what they have written, for a volume that it does not export: a check or the replay of a journal may take minutes.
func (b *Backend) serveAll(ctx context.Context, all []*backend.Volume) {
	var group errgroup.Group
	group.SetLimit(abreast)
	for _, v := range all {
		b.setState(v.ID, &exportState{fault: fmt.Errorf("%w: it is being mounted", backend.ErrUnavailable)})
	}
	for _, v := range all {
		limit := b.Patience
		if _, known := b.ledger.find(v.ID); known {
			limit *= knownPatience
		}
		group.Go(func() error { b.retry(ctx, v.ID, limit); return nil })
	}
	_ = group.Wait() // errors are recorded per volume
}

// retry retries to serve a volume, and records the result.
func (b *Backend) retry(ctx context.Context, id backend.ID, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := backend.Run(ctx, &b.ops, id, "export", func(ctx context.Context) error {
		v, err := b.Storage.Get(ctx, id)
		if backend.IsAbsent(err) {
			return b.remove(ctx, id) // another program has deleted it
		}
		if err != nil || b.state(id).leaving {
			return err
		}
		return b.serve(ctx, v)
	})
	if errors.Is(err, backend.ErrBusy) {
		b.Log.Info("exporting a volume takes long and delays others", "volume", id, "error", err)
	}
}

// retryLoop retries volumes that are not served, and remounts those that were unmounted. It polls, since no event
// reports that the cause of a failure is gone.
func (b *Backend) retryLoop(ctx context.Context) {
	tick := time.NewTicker(b.RetryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, id := range b.toRetry(ctx) {
				b.retry(ctx, id, b.RetryEvery)
			}
		}
	}
}

// toRetry returns the volumes that are not served as desired, and those served that no longer exist.
func (b *Backend) toRetry(ctx context.Context) (ids []backend.ID) {
	all, err := b.Storage.List(ctx)
	if err != nil {
		b.Log.Warn("cannot list volumes", "error", err)
		return nil
	}
	mounts, err := nodeops.Mounts()
	if err != nil {
		b.Log.Warn("cannot list mounts", "error", err)
		return nil
	}
	writable := make(map[string]bool, len(mounts))
	for _, m := range mounts {
		writable[m.Target] = !m.ReadOnly
	}
	there := make(map[backend.ID]bool, len(all))
	for _, v := range all {
		there[v.ID] = true
		s := b.state(v.ID)
		if (s.fault != nil || !writable[b.target(v.ID)]) && time.Now().After(s.after) {
			ids = append(ids, v.ID)
		}
	}
	for _, id := range b.known() {
		if !there[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
