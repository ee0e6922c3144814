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

// ErrLeaseLost means that another process may be the leader.
var ErrLeaseLost = errors.New("another process may lead by now: the Lease could not be renewed in time")

// Lease configures leader election.
type Lease struct {
	Client          coordination.LeasesGetter
	Namespace, Name string
	// Holder identifies this process; no other may have the same.
	Holder string
	// Lasts is how long a Lease is valid after its last renewal. The holder stops its work after two thirds of it.
	Lasts time.Duration
	// Standby, if not nil, is called with the holder while another process holds the Lease.
	Standby func(holder string)
}

// Lead waits for the Lease and runs work while it is held; the context of work ends when the Lease is lost or ctx ends.
// The Lease is released after work has returned, so that two leaders never write. Lead returns the error of work, or
// ErrLeaseLost if work ended without an error before ctx did.
func (l Lease) Lead(ctx context.Context, work func(context.Context) error) error {
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var (
		result  error
		ended   = make(chan struct{})
		yielded atomic.Bool // ctx ended before the Lease was acquired: there is no work to wait for
	)
	stopWaiting := context.AfterFunc(ctx, func() { yielded.Store(true); release() })
	lock := &heldLock{l.lock(), ended}
	elector, err := leaderelection.NewLeaderElector(l.election(lock, func(lease context.Context) {
		defer release() // which the lock allows when the work has ended
		defer close(ended)
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

// heldLock is a Lease that is not given back before the work has ended: when it could not be renewed in time, the elector gives
// it back first, and only then ends the work. It then expires.
type heldLock struct {
	*resourcelock.LeaseLock
	ended <-chan struct{} // closed when the work has
}

var errWorking = errors.New("the work has not ended")

func (h *heldLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		select {
		case <-h.ended:
		default:
			return errWorking
		}
	}
	return h.LeaseLock.Update(ctx, record)
}

func (l Lease) lock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace},
		Client:     l.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Holder},
	}
}

func (l Lease) election(lock resourcelock.Interface, leading func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock:          lock,
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
