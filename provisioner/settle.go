package provisioner

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// settleAll looks at everything that was begun.
func (p *Provisioner) settleAll() {
	for _, id := range p.journal.all() {
		p.settling.Add(id)
	}
}

// settleOn looks at a volume that was begun when its claim changes or goes.
func (p *Provisioner) settleOn(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	c, ok := object.(*core.PersistentVolumeClaim)
	if !ok {
		return
	}
	id := backend.ID(nameFor(c))
	if _, begun := p.journal.get(id); begun {
		p.settling.Add(id)
	}
}

// nameFor is how the library names the PersistentVolume of a claim.
func nameFor(c *core.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// settleNext returns false when there will be no more.
func (p *Provisioner) settleNext(ctx context.Context) bool {
	id, shutdown := p.settling.Get()
	if shutdown {
		return false
	}
	defer p.settling.Done(id)
	err := p.guard("settling", func() error { return p.settle(ctx, id) })
	switch {
	case err == nil || errors.Is(err, errResting):
		p.settling.Forget(id)
	default:
		p.log.Warn("a volume that was begun is not settled; trying again", "volume", id, "error", err)
		p.settling.AddRateLimited(id)
	}
	return true
}

// settle finds out what became of a volume that was begun: it has its PersistentVolume, it is still wanted, or it is
// removed. It asks the API server itself, since a cache may be behind.
func (p *Provisioner) settle(ctx context.Context, id backend.ID) error {
	ctx, done, open := p.gate.enter(ctx)
	if !open {
		return errResting // it is looked at again when the Lease is held
	}
	defer done()
	e, begun := p.journal.get(id)
	if !begun {
		return nil
	}
	pv, err := p.Client.CoreV1().PersistentVolumes().Get(ctx, e.Name, metav1.GetOptions{})
	switch {
	case err == nil && p.owns(pv):
		return p.journal.end(id)
	case err == nil:
		return p.discard(ctx, id, e, "another server made the PersistentVolume")
	case !apierrors.IsNotFound(err):
		return err
	}
	c, err := p.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, e.Claim, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && string(c.UID) != e.UID:
		return p.discard(ctx, id, e, "the claim was deleted before it had a PersistentVolume")
	case err != nil:
		return err
	case c.Spec.VolumeName == e.Name:
		// It was written, and is gone by force: whoever did that may want the data.
		p.log.Warn("a claim lost its PersistentVolume; its data is kept on the server", "volume", id, "claim", e.Namespace+"/"+e.Claim)
		return p.journal.end(id)
	case c.Spec.VolumeName != "":
		return p.discard(ctx, id, e, "the claim has another volume")
	}
	return nil // still wanted
}

// discard removes a volume that nobody has ever used.
func (p *Provisioner) discard(ctx context.Context, id backend.ID, e entry, why string) error {
	v, err := p.Backend.Get(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound):
	case err != nil:
		return err
	case v.Labels[v1.NFSServerLabel] != p.Identity || v.Labels[ClaimUIDLabel] != e.UID:
		p.log.Warn("a volume that was begun is now another; left alone", "volume", id)
		return p.journal.end(id)
	}
	if err := p.remove(ctx, id); err != nil {
		return fmt.Errorf("volume %s, which nobody wants any more (%s): %w", id, why, err)
	}
	if v != nil {
		p.log.Info("removed a volume that was never used", "volume", id, "claim", e.Namespace+"/"+e.Claim, "why", why)
	}
	return p.journal.end(id)
}

// remove takes a volume away, with what else is known of it. That is looked for once more afterwards, since it may be
// noted by somebody who saw the volume right before.
func (p *Provisioner) remove(ctx context.Context, id backend.ID) error {
	forget := p.Forget
	if forget == nil {
		forget = func(context.Context, backend.ID) error { return nil }
	}
	if err := forget(ctx, id); err != nil {
		return err
	}
	if err := p.Backend.Delete(ctx, id); err != nil {
		return err
	}
	return forget(ctx, id)
}
