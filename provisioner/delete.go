package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

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
	name := p.volumeName(pv.Name)
	id, err := backend.IDFor(name)
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
	case v.Labels[v1beta1.NFSServerLabel] != p.Identity || v.Name != name:
		return fmt.Errorf("%w: volume %s was not made for PersistentVolume %s; nothing is deleted. If it is no longer needed: holdfast volumes delete %s",
			backend.ErrPrecondition, id, pv.Name, id)
	}
	return p.dispose(ctx, pv, v)
}

// unclaimed refuses to delete the data of a claim that exists, regardless of the phase of the PersistentVolume.
func (p *Provisioner) unclaimed(ctx context.Context, pv *core.PersistentVolume) error {
	claim, err := p.claimOf(ctx, pv)
	if claim == nil || err != nil || claim.UID != pv.Spec.ClaimRef.UID || claim.Spec.VolumeName != pv.Name {
		return err
	}
	return fmt.Errorf("%w: PersistentVolume %s is that of claim %s/%s, which exists; nothing is deleted: delete the claim", backend.ErrPrecondition, pv.Name, claim.Namespace, claim.Name)
}

// claimOf asks the API server for the claim of the name in a claimRef; nil if there is none.
func (p *Provisioner) claimOf(ctx context.Context, pv *core.PersistentVolume) (*core.PersistentVolumeClaim, error) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	claim, err := kube.Live(ctx, p.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("whether claim %s/%s still has PersistentVolume %s: %w", ref.Namespace, ref.Name, pv.Name, err)
	}
	return claim, nil
}

// unshared refuses to delete data that a claim has by another PersistentVolume, such as one that an administrator wrote for
// the same export or a directory in it. The informer has none of those, so all are listed.
func (p *Provisioner) unshared(ctx context.Context, pv *core.PersistentVolume, id backend.ID) error {
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: string(id)},
		Spec:       v1beta1.VolumeSpec{Node: v1beta1.NodeOfServer(p.Identity)},
		Status:     v1beta1.VolumeStatus{Access: &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Path: p.Path(id)}}},
	}
	var claimed error
	err := kube.Each(ctx, p.Client.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, func(other *core.PersistentVolume) {
		if claimed == nil && other.Name != pv.Name && persistent.Names(v, other) {
			claimed = p.unclaimedBy(ctx, other, id)
		}
	})
	if claimed == nil && err != nil {
		return fmt.Errorf("whether another PersistentVolume leads to volume %s: %w", id, err)
	}
	return claimed
}

// unclaimedBy takes a claim that is about to be bound for one that is: its claimRef may have no UID yet, or the claim no
// volume.
func (p *Provisioner) unclaimedBy(ctx context.Context, other *core.PersistentVolume, id backend.ID) error {
	claim, err := p.claimOf(ctx, other)
	if claim == nil || err != nil {
		return err
	}
	if uid := other.Spec.ClaimRef.UID; uid != "" && uid != claim.UID || claim.Spec.VolumeName != "" && claim.Spec.VolumeName != other.Name {
		return nil
	}
	return fmt.Errorf("%w: volume %s is that of claim %s/%s too, by PersistentVolume %s; nothing is deleted: delete that claim first",
		backend.ErrPrecondition, id, claim.Namespace, claim.Name, other.Name)
}

// dispose applies the deletion policy that was recorded when the volume was created.
func (p *Provisioner) dispose(ctx context.Context, pv *core.PersistentVolume, v *backend.Volume) error {
	what := OnDelete(cmp.Or(v.Labels[v1beta1.OnDeleteLabel], pv.Annotations[v1beta1.OnDeleteAnnotation]))
	if what != RetainData {
		if err := p.unshared(ctx, pv, v.ID); err != nil {
			return err
		}
	}
	switch what {
	case DeleteData:
	case RetainData:
		p.eventOncef(pv, core.EventTypeNormal, "Retained", "the data stays on NFS server %s as volume %s, exported as %s and taking %s of what the server can promise; when it is no longer needed: holdfast volumes delete %s",
			p.Identity, v.ID, p.Path(v.ID), backend.Readable(v.Size), v.ID)
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
	p.claims.again(p.stopsWaiting) // there is space now
	return p.journal.end(v.ID)
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
