package main

import (
	"context"
	"log/slog"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
)

// aloneLease is held by an operator that runs alone, outside of the cluster.
const aloneLease = "holdfast-operator"

// standingBy runs p as long as nobody holds aloneLease, and again when it is given up.
func (o *operator) standingBy(watches *kube.Watches, log *slog.Logger, p part) part {
	return func(ctx context.Context) error {
		changed, held, err := o.watchAlone(ctx, watches)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if held() > 0 {
				log.Info("the operator stands by, since one runs outside of the cluster", "lease", aloneLease)
				if !waitUntilFree(ctx, changed, held) {
					return nil
				}
			}
			if err := runWhileFree(ctx, changed, held, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// watchAlone follows aloneLease: changed tells of each change, held for how long it is held.
func (o *operator) watchAlone(ctx context.Context, watches *kube.Watches) (changed <-chan struct{}, held func() time.Duration, err error) {
	leases := watches.Cluster.Coordination().V1().Leases()
	news := make(chan struct{}, 1)
	touch := func(l any) {
		if deleted, ok := l.(cache.DeletedFinalStateUnknown); ok {
			l = deleted.Obj
		}
		if lease, ok := l.(*coordination.Lease); ok && lease.Name != aloneLease { // there is one for each node
			return
		}
		select {
		case news <- struct{}{}:
		default:
		}
	}
	registered, err := leases.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: touch, UpdateFunc: func(_, l any) { touch(l) }, DeleteFunc: touch,
	})
	if err != nil {
		return nil, nil, err
	}
	watches.Start()
	cache.WaitFor(ctx, "", registered.HasSyncedChecker())
	return news, func() time.Duration {
		lease, err := leases.Lister().Leases(o.namespace).Get(aloneLease)
		if err != nil {
			return 0 // there is none
		}
		return heldFor(lease, time.Now())
	}, nil
}

// heldFor is how long a Lease is still held if it is not renewed.
func heldFor(l *coordination.Lease, now time.Time) time.Duration {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second).Sub(now)
}

// waitUntilFree returns false if ctx ends first.
func waitUntilFree(ctx context.Context, changed <-chan struct{}, held func() time.Duration) bool {
	for {
		left := held()
		if left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-time.After(left):
		}
	}
}

// runWhileFree runs p until the Lease is held, or p ends.
func runWhileFree(ctx context.Context, changed <-chan struct{}, held func() time.Duration, p part) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-changed:
			if held() > 0 {
				stop()
				return <-ended
			}
		}
	}
}
