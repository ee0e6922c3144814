package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// begunFor finds the volume whose creation for a claim has begun.
func (p *Provisioner) begunFor(claim any) []backend.ID {
	c, ok := claim.(*core.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	id := backend.ID(nameFor(c))
	if _, begun := p.journal.get(id); !begun {
		return nil
	}
	return []backend.ID{id}
}

// nameFor returns the name of the volume of a claim, which is the name that the library gives to its PersistentVolume.
func nameFor(c *core.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// reconcile handles one volume of the journal: if it has its PersistentVolume the entry is removed, if its claim still
// needs it it stays, and otherwise it is removed. It reads from the API server, since a cache may be behind.
func (p *Provisioner) reconcile(ctx context.Context, id backend.ID) (again time.Duration, err error) {
	ctx, done, open := p.gate.enter(ctx)
	if !open {
		return 0, nil // it is queued again when the Lease is held
	}
	defer done()
	if e, begun := p.journal.get(id); begun {
		err = p.endBegun(ctx, id, e)
	}
	return 0, err
}

func (p *Provisioner) endBegun(ctx context.Context, id backend.ID, e entry) error {
	// The claim is read first. Otherwise its PersistentVolume could be created, and the claim be bound, between the reads.
	c, noClaim := p.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, e.Claim, metav1.GetOptions{})
	if kube.IgnoreNotFound(noClaim) != nil {
		return noClaim
	}
	pv, err := p.findPersistent(ctx, e.Name)
	switch {
	case err == nil && p.owns(pv):
		return p.journal.end(id)
	case err == nil:
		return p.discard(ctx, id, e, "another server made the PersistentVolume")
	case !apierrors.IsNotFound(err):
		return err
	case noClaim != nil || string(c.UID) != e.UID:
		return p.discard(ctx, id, e, "the claim was deleted before it had a PersistentVolume")
	case p.volumeName(c.Spec.VolumeName) == e.Name:
		// Its PersistentVolume was written, and was deleted by force: the data may still be needed.
		p.log.Warn("a claim lost its PersistentVolume; its data is kept on the server", "volume", id, "claim", e.Namespace+"/"+e.Claim)
		return p.journal.end(id)
	case c.Spec.VolumeName != "":
		return p.discard(ctx, id, e, "the claim has another volume")
	}
	return nil // its claim still needs it
}

// discard removes a volume that was never used.
func (p *Provisioner) discard(ctx context.Context, id backend.ID, e entry, why string) error {
	v, err := p.Backend.Get(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound):
	case err != nil:
		return err
	case v.Labels[v1beta1.NFSServerLabel] != p.Identity || v.Labels[ClaimUIDLabel] != e.UID:
		p.log.Warn("an unfinished volume was replaced by another; left alone", "volume", id)
		return p.journal.end(id)
	}
	if err := p.remove(ctx, id); err != nil {
		return fmt.Errorf("volume %s, which is no longer needed (%s): %w", id, why, err)
	}
	if v != nil {
		p.log.Info("removed a volume that was never used", "volume", id, "claim", e.Namespace+"/"+e.Claim, "why", why)
	}
	return p.journal.end(id)
}

// remove removes a volume and its objects. It deletes the objects once more afterwards: a concurrent call that still
// saw the volume may have written them again.
func (p *Provisioner) remove(ctx context.Context, id backend.ID) error {
	if err := p.Forget(ctx, id); err != nil {
		return err
	}
	if err := p.Backend.Delete(ctx, id); err != nil {
		return err
	}
	return p.Forget(ctx, id)
}
