package provisioner

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeasePrefix and the server's NAMESPACE.NAME make the name of the Lease of its provisioner.
const LeasePrefix = "holdfast-nfs-provisioner-"

func (p *Provisioner) leaseName() string {
	return LeasePrefix + strings.ReplaceAll(p.Identity, "/", ".")
}

// lead serves terms, one after the other, until ctx ends. Losing the Lease ends a term and nothing else.
func (p *Provisioner) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.serveTerm(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serveTerm waits for the Lease and works as long as it is held. It is given up last, when nothing of this process
// writes any more.
func (p *Provisioner) serveTerm(ctx context.Context) error {
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	ended := make(chan struct{})
	var yielded atomic.Bool // before the Lease was got: there is nothing to end
	stopWaiting := context.AfterFunc(ctx, func() { yielded.Store(true); release() })
	elector, err := leaderelection.NewLeaderElector(p.election(func(lease context.Context) {
		defer close(ended)
		defer release()
		if !stopWaiting() {
			return
		}
		term, stop := context.WithCancel(lease)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		p.work(term)
	}))
	if err != nil {
		return err
	}
	elector.Run(holding)
	if yielded.Load() {
		return nil
	}
	<-ended
	if ctx.Err() == nil {
		p.log.Warn("provisioning rests, since the Lease could not be renewed in time; volumes stay exported, and it goes on when the Lease is got again", "lease", p.leaseName())
	}
	return nil
}

func (p *Provisioner) election(work func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: p.leaseName(), Namespace: p.Namespace},
			Client:     p.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: p.Holder},
		},
		LeaseDuration: p.Lease, RenewDeadline: p.Lease * 2 / 3, RetryPeriod: p.Lease / 8, ReleaseOnCancel: true, Name: p.leaseName(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work, OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != p.Holder && holder != "" {
					p.log.Info("standing by, since another process provisions for this server", "lease", p.leaseName(), "holder", holder)
				}
			},
		},
	}
}

// work lets calls through until the term ends. What came up while nobody worked is looked at again.
func (p *Provisioner) work(term context.Context) {
	p.log.Info("provisioning", "server", p.Identity, "holder", p.Holder)
	if err := p.journal.read(p.log); err != nil {
		p.log.Warn("the journal cannot be read again; what another process began is not known", "error", err)
	}
	p.gate.open(term)
	p.claims.again()
	p.volumes.again()
	look := time.NewTicker(p.Resync)
	defer look.Stop()
	for {
		p.settleAll()
		select {
		case <-look.C:
		case <-term.Done():
			p.gate.shut()
			return
		}
	}
}

// errResting is the reason for what is not done now. Whoever holds the Lease does it.
var errResting = errors.New("this process does not hold the Lease of its server")
