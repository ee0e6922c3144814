package provisioner

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-storage/holdfast/kube"
)

// LeasePrefix and the server's NAMESPACE.NAME make the name of the Lease of its provisioner.
const LeasePrefix = "holdfast-nfs-provisioner-"

func (p *Provisioner) leaseName() string {
	return LeasePrefix + strings.ReplaceAll(p.Identity, "/", ".")
}

// lead runs for the Lease until ctx ends. Losing the Lease ends a term, not the process.
func (p *Provisioner) lead(ctx context.Context) error {
	lease := kube.Lease{
		Client: p.Client.CoordinationV1(), Namespace: p.Namespace, Name: p.leaseName(), Holder: p.Holder, Lasts: p.Lease,
		Standby: func(holder string) {
			p.log.Info("standing by, since another process provisions for this server", "lease", p.leaseName(), "holder", holder)
		},
	}
	for ctx.Err() == nil {
		err := lease.Lead(ctx, func(term context.Context) error {
			p.work(term)
			return nil
		})
		if !errors.Is(err, kube.ErrLeaseLost) {
			return err
		}
		p.log.Warn("provisioning stops, since the Lease could not be renewed in time; volumes stay exported, and it continues when the Lease is acquired again", "lease", p.leaseName())
	}
	return nil
}

// work opens the gate until the term ends. It queues the objects again that were dropped while no process held the
// Lease.
func (p *Provisioner) work(term context.Context) {
	p.log.Info("provisioning", "server", p.Identity, "holder", p.Holder)
	if err := p.journal.read(p.log); err != nil {
		p.log.Warn("the journal cannot be read again; the unfinished volumes of another process are not known", "error", err)
	}
	p.gate.open(term)
	p.claims.again(anything)
	p.volumes.again(anything)
	wait.UntilWithContext(term, func(context.Context) {
		for _, id := range p.journal.all() {
			p.begun.Enqueue(id)
		}
	}, p.Resync)
	p.gate.shut()
}

// errResting is the error of calls while another process holds the Lease; that process serves them.
var errResting = errors.New("this process does not hold the Lease of its server")
