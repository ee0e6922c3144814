package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// archivePrefix and the name of a PersistentVolume make the name of the snapshot that archives it.
const archivePrefix = "archived-"

// Delete deletes, retains or archives the data of a PersistentVolume, as its class specified at creation. The library
// removes the object afterwards. It is idempotent.
func (p *Provisioner) Delete(ctx context.Context, pv *core.PersistentVolume) error {
	inTerm, done, open := p.gate.enter(ctx)
	if !open {
		return ignored(errResting)
	}
	defer done()
	// The library recognizes an IgnoredError only if it is not wrapped.
	err := p.guard("deleting", func() error { return p.delete(inTerm, pv) })
	if inTerm.Err() != nil && ctx.Err() == nil {
		return ignored(errResting)
	}
	return err
}

func (p *Provisioner) delete(ctx context.Context, pv *core.PersistentVolume) error {
	if pv.Annotations[v1beta1.NFSServerAnnotation] != p.Identity {
		return p.leaveAlone(pv, pv.Annotations[v1beta1.NFSServerAnnotation])
	}
	id, err := backend.IDFor(pv.Name)
	if err != nil || string(id) != pv.Annotations[v1beta1.NFSVolumeAnnotation] {
		return fmt.Errorf("%w PersistentVolume %s: its annotation %s is %s, and not the volume that was made for it; nothing is deleted",
			backend.ErrInvalid, pv.Name, v1beta1.NFSVolumeAnnotation, backend.Quote(pv.Annotations[v1beta1.NFSVolumeAnnotation]))
	}
	if err := p.unclaimed(ctx, pv); err != nil {
		return err
	}
	v, err := p.Backend.Get(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound) && !p.owns(pv):
		return p.otherData(pv)
	case errors.Is(err, backend.ErrNotFound):
		return p.remove(ctx, id) // what an interrupted removal left
	case err != nil:
		return err
	case v.Condition.Abnormal && len(v.Labels) == 0 && p.owns(pv):
		// Its labels are lost with the rest; the PersistentVolume has enough.
	case v.Labels[v1beta1.NFSServerLabel] != p.Identity || v.Name != pv.Name:
		return fmt.Errorf("%w: volume %s was not made for PersistentVolume %s; nothing is deleted. If it is no longer needed: holdfast volumes delete %s",
			backend.ErrPrecondition, id, pv.Name, id)
	}
	return p.dispose(ctx, pv, v)
}

// unclaimed refuses to delete the data of a claim that exists, regardless of the phase of the PersistentVolume.
func (p *Provisioner) unclaimed(ctx context.Context, pv *core.PersistentVolume) error {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	claim, err := p.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("whether claim %s/%s still has PersistentVolume %s: %w", ref.Namespace, ref.Name, pv.Name, err)
	case claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name:
		return fmt.Errorf("%w: PersistentVolume %s is that of claim %s/%s, which exists; nothing is deleted: delete the claim", backend.ErrPrecondition, pv.Name, ref.Namespace, ref.Name)
	}
	return nil
}

// dispose applies the deletion policy that was recorded when the volume was created.
func (p *Provisioner) dispose(ctx context.Context, pv *core.PersistentVolume, v *backend.Volume) error {
	switch what := OnDelete(cmp.Or(v.Labels[v1beta1.OnDeleteLabel], pv.Annotations[v1beta1.OnDeleteAnnotation])); what {
	case DeleteData:
	case RetainData:
		p.eventOncef(pv, core.EventTypeNormal, "Retained", "the data stays on NFS server %s as volume %s, exported as %s and taking %d bytes of what the server can promise; when it is no longer needed: holdfast volumes delete %s",
			p.Identity, v.ID, p.Path(v.ID), v.Size, v.ID)
		return p.journal.end(v.ID)
	case ArchiveData:
		if err := p.archive(ctx, pv, v); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: volume %s: its value of onDelete, %s, is not known to this program; use the newer one", backend.ErrPrecondition, v.ID, backend.Quote(string(what)))
	}
	if err := p.remove(ctx, v.ID); err != nil {
		return err
	}
	for _, c := range p.waiting.take() {
		p.claims.tell(c) // there is space now
	}
	return p.journal.end(v.ID)
}

// archive keeps the data as a snapshot, which no client can reach and which takes only the space of written blocks.
func (p *Provisioner) archive(ctx context.Context, pv *core.PersistentVolume, v *backend.Volume) error {
	snapshots, able := p.Backend.(backend.Snapshotter)
	if !able {
		return fmt.Errorf("%w: volume %s is to be archived, and this server cannot make snapshots; its data is kept", backend.ErrPrecondition, v.ID)
	}
	s, err := snapshots.Snapshot(ctx, backend.SnapshotSpec{Name: archivePrefix + pv.Name, Source: v.ID})
	if err != nil {
		return fmt.Errorf("archiving volume %s: %w", v.ID, err)
	}
	p.Made(backend.SourceSnapshot, s.ID)
	p.eventOncef(pv, core.EventTypeNormal, "Archived", "the data is kept on NFS server %s as snapshot %s; when it is no longer needed: holdfast snapshots delete %s",
		p.Identity, s.ID, s.ID)
	return nil
}

// leaveAlone ignores the PersistentVolume of another server, and writes an event if its server does not delete it.
func (p *Provisioner) leaveAlone(pv *core.PersistentVolume, server string) error {
	if since := pv.Status.LastPhaseTransitionTime; since == nil || time.Since(since.Time) >= p.Patience {
		p.eventOncef(pv, core.EventTypeWarning, "LeftAlone", "it was created by NFS server %s, which does not delete it; NFS server %s leaves it alone. If that server is gone for good, remove the finalizer of this PersistentVolume and delete it",
			cmp.Or(server, "(unknown)"), p.Identity)
	}
	return ignored(fmt.Errorf("PersistentVolume %s is of NFS server %s, and this is %s", pv.Name, cmp.Or(server, "(unknown)"), p.Identity))
}

// otherData ignores a PersistentVolume whose volume is not here, and may be with a server of the same name.
func (p *Provisioner) otherData(pv *core.PersistentVolume) error {
	p.eventOncef(pv, core.EventTypeWarning, "LeftAlone", "it was created by an NFS server %s with other data (%s) than this one has (%s), and its volume %s is not here. Bring that data back, or, if it is gone for good, remove the finalizer of this PersistentVolume and delete it",
		p.Identity, cmp.Or(pv.Annotations[v1beta1.NFSStoreAnnotation], "unknown"), p.journal.store, pv.Annotations[v1beta1.NFSVolumeAnnotation])
	return ignored(fmt.Errorf("PersistentVolume %s is of other data than NFS server %s has", pv.Name, p.Identity))
}
