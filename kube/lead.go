package kube

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLeaseLost says that another process may lead by now.
var ErrLeaseLost = errors.New("another process may lead by now: the Lease could not be renewed in time")

// Lease is the Lease for which the processes compete.
type Lease struct {
	Client          coordination.LeasesGetter
	Namespace, Name string
	// Holder is this process, and no other.
	Holder string
	// Lasts is the time without renewal after which a Lease counts as free. The holder stops its work after two thirds
	// of it.
	Lasts time.Duration
	// Standby, if not nil, is called with the other holder of the Lease.
	Standby func(holder string)
}

// Lead waits for the Lease and works as long as it is held; the context of work ends with the Lease, and with ctx. The
// Lease is released last, when work has returned and can no longer write anything. The error is that of work. If work
// ended without an error before ctx did, the Lease was lost, which is ErrLeaseLost.
func (l Lease) Lead(ctx context.Context, work func(context.Context) error) error {
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var (
		result  error
		ended   = make(chan struct{})
		yielded atomic.Bool // before the Lease was got: there is nothing to end
	)
	stopWaiting := context.AfterFunc(ctx, func() { yielded.Store(true); release() })
	elector, err := leaderelection.NewLeaderElector(l.election(func(lease context.Context) {
		defer close(ended)
		defer release()
		if !stopWaiting() {
			return
		}
		term, stop := context.WithCancel(lease)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		result = work(term)
	}))
	if err != nil {
		return err
	}
	elector.Run(holding)
	if yielded.Load() {
		return nil
	}
	<-ended
	if result == nil && ctx.Err() == nil {
		return ErrLeaseLost
	}
	return result
}

func (l Lease) election(leading func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace},
			Client:     l.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Holder},
		},
		LeaseDuration: l.Lasts, RenewDeadline: l.Lasts * 2 / 3, RetryPeriod: l.Lasts / 6, ReleaseOnCancel: true, Name: l.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: leading, OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if l.Standby != nil && holder != l.Holder && holder != "" {
					l.Standby(holder)
				}
			},
		},
	}
}
