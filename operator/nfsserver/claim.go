package nfsserver

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

func claimFor(s *v1beta1.NFSServer) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		// It has no owner: reclaimPolicy decides whether it is deleted, not the garbage collector.
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: objectName(s), Labels: labelsOf(s)},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			StorageClassName: s.Spec.Storage.StorageClassName,
			Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: *s.Spec.Storage.Size}},
		},
	}
}

// isOurs says whether a claim was created for this server. One that outlived a server of the same name is used again.
func isOurs(c *core.PersistentVolumeClaim, s *v1beta1.NFSServer) bool {
	return c.Labels[apply.ManagedByLabel] == apply.FieldManager && c.Labels[Label] == s.Name
}

// grown returns the claim with the size that it must request, nil if it does already. It never shrinks, since a user may
// have grown it.
func grown(c *core.PersistentVolumeClaim, s *v1beta1.NFSServer) *core.PersistentVolumeClaim {
	asked := c.Spec.Resources.Requests[core.ResourceStorage]
	if asked.Cmp(*s.Spec.Storage.Size) >= 0 {
		return nil
	}
	c = c.DeepCopy()
	c.Spec.Resources.Requests[core.ResourceStorage] = *s.Spec.Storage.Size
	return c
}

var errForeignClaim = errors.New("it exists and was not created for this server: name it in spec.storage.claimName of another server, or delete it")

// isClaimForeign says whether another client has created a claim with the name of the server's.
func (r *round) isClaimForeign() bool {
	return makesClaim(r.server) && r.claim != nil && !isOurs(r.claim, r.server)
}

// maintainClaim plans for a claim and its PersistentVolume: the claim is created or grown, and never replaced, since it
// holds the data.
func (r *round) maintainClaim() {
	r.again = kube.Sooner(r.again, r.volumeAgain)
	switch {
	case r.claimUnread != nil:
		r.claimRefused = r.claimUnread
	case r.isClaimForeign():
		r.claimRefused = fmt.Errorf("claim %s: %w", r.claim.Name, errForeignClaim)
	case r.claim == nil && makesClaim(r.server):
		r.makeClaim = claimFor(r.server)
		if r.data != nil {
			r.patchVolume = rebind(r.makeClaim, r.data)
		}
	default:
		if makesClaim(r.server) {
			r.growClaim = grown(r.claim, r.server)
		}
		if r.volume != nil && isBoundTo(r.volume, r.claim) && !isKept(r.volume, r.server) {
			r.patchVolume = keep(r.volume, r.server)
		}
	}
}

// The volumes of a server are the data of many tenants, and lie in one claim that any user of the namespace may delete,
// alone or with the namespace. So while the server exists, the PersistentVolume outlives its claim, and the claim is
// recreated for it.
const (
	// dataAnnotation, on a PersistentVolume, is NAMESPACE/NAME of the server whose data it has.
	dataAnnotation = v1beta1.GroupName + "/nfs-server-data"
	// policyAnnotation, on a PersistentVolume, is the reclaim policy that it had before, and that is restored.
	policyAnnotation = v1beta1.GroupName + "/reclaim-policy-before"
)

// volumePatch is a change of a PersistentVolume as it was observed.
type volumePatch struct {
	pv          *core.PersistentVolume
	annotations map[string]any
	spec        map[string]any
}

func isBoundTo(pv *core.PersistentVolume, claim *core.PersistentVolumeClaim) bool {
	return pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID
}

// isKept says whether a PersistentVolume outlives the claim of a server.
func isKept(pv *core.PersistentVolume, s *v1beta1.NFSServer) bool {
	return pv.Annotations[dataAnnotation] == keyOf(s).String() && pv.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimRetain
}

// keep plans that the PersistentVolume of a server's claim outlives the claim.
func keep(pv *core.PersistentVolume, s *v1beta1.NFSServer) *volumePatch {
	annotations := map[string]any{dataAnnotation: keyOf(s).String()}
	if pv.Annotations[policyAnnotation] == "" {
		annotations[policyAnnotation] = string(pv.Spec.PersistentVolumeReclaimPolicy)
	}
	return &volumePatch{pv, annotations, map[string]any{"persistentVolumeReclaimPolicy": core.PersistentVolumeReclaimRetain}}
}

// release restores the reclaim policy of a PersistentVolume, since its server is being removed and is empty. One without
// a claim is kept, unless it is to be deleted with the server.
func release(pv *core.PersistentVolume, claim *core.PersistentVolumeClaim, s *v1beta1.NFSServer) *volumePatch {
	spec := map[string]any{}
	if before := pv.Annotations[policyAnnotation]; before != "" && (claim != nil || s.Spec.ReclaimPolicy == core.PersistentVolumeReclaimDelete) {
		spec["persistentVolumeReclaimPolicy"] = before
	}
	return &volumePatch{pv, map[string]any{dataAnnotation: nil, policyAnnotation: nil}, spec}
}

// rebind makes a claim request the PersistentVolume that was kept.
func rebind(claim *core.PersistentVolumeClaim, pv *core.PersistentVolume) *volumePatch {
	has := pv.Spec.Capacity[core.ResourceStorage]
	if asked := claim.Spec.Resources.Requests[core.ResourceStorage]; asked.Cmp(has) > 0 {
		claim.Spec.Resources.Requests[core.ResourceStorage] = has // it is grown once it is bound
	}
	claim.Spec.VolumeName, claim.Spec.StorageClassName = pv.Name, &pv.Spec.StorageClassName
	claim.Spec.VolumeMode, claim.Spec.AccessModes = pv.Spec.VolumeMode, pv.Spec.AccessModes
	// Without the UID of the deleted claim it can be bound to the new one.
	return &volumePatch{pv: pv, spec: map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}}}
}

func (c *Controller) patchVolume(ctx context.Context, s *v1beta1.NFSServer, p *volumePatch) error {
	metadata := map[string]any{"uid": p.pv.UID, "resourceVersion": p.pv.ResourceVersion}
	if p.annotations != nil { // null would remove all
		metadata["annotations"] = p.annotations
	}
	change := map[string]any{"metadata": metadata, "spec": p.spec}
	if _, err := kube.MergePatch(ctx, c.Kubernetes.CoreV1().PersistentVolumes().Patch, p.pv.Name, change, apply.FieldManager); err != nil {
		return fmt.Errorf("PersistentVolume %s, which has the data of NFS server %s: %w", p.pv.Name, keyOf(s), err)
	}
	return nil
}
