package kube

import (
	"context"
	"log/slog"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

// Standby runs work only while no process holds a Lease. A process that is started by hand acquires it to replace this
// one.
type Standby struct {
	Watches         *Watches
	Namespace, Name string // of the Lease
	Log             *slog.Logger
}

// Run runs work while no process holds the Lease, and again after each release. It returns the error of work.
func (s Standby) Run(ctx context.Context, work func(context.Context) error) error {
	changed, held, err := s.watch(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if held() > 0 {
			s.Log.Info("standing by, since another process holds the Lease", "lease", s.Name)
			if !waitUntilFree(ctx, changed, held) {
				return nil
			}
		}
		if err := runWhileFree(ctx, changed, held, work); err != nil {
			return err
		}
	}
	return nil
}

// watch watches the Lease: changed signals each change, held returns for how long it is still held.
func (s Standby) watch(ctx context.Context) (changed <-chan struct{}, held func() time.Duration, err error) {
	leases := s.Watches.Cluster.Coordination().V1().Leases()
	news := make(chan struct{}, 1)
	registered, err := leases.Informer().AddEventHandler(OnChange(func(l any) {
		if lease, ok := Deleted(l).(*coordination.Lease); !ok || lease.Name == s.Name { // the namespace has one for each node too
			Notify(news)
		}
	}))
	if err != nil {
		return nil, nil, err
	}
	s.Watches.Start()
	cache.WaitFor(ctx, "", registered.HasSyncedChecker())
	return news, func() time.Duration {
		lease, err := leases.Lister().Leases(s.Namespace).Get(s.Name)
		if err != nil {
			return 0 // it does not exist
		}
		return heldFor(lease, time.Now())
	}, nil
}

// heldFor returns for how long a Lease is still valid without a renewal.
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

// runWhileFree runs work until a process acquires the Lease, or work returns.
func runWhileFree(ctx context.Context, changed <-chan struct{}, held func() time.Duration, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
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
