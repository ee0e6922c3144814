package nfsserver

import (
	"context"
	"encoding/json"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// The volumes of a server are many tenants' data, and the claim that they lie in is one object that anybody may delete,
// alone or with its namespace. So as long as there is the server, the PersistentVolume of its claim is kept when the claim
// goes, and the claim is made again for it.
const (
	// dataAnnotation, on a PersistentVolume, is NAMESPACE/NAME of the server whose data it has.
	dataAnnotation = v1.GroupName + "/nfs-server-data"
	// policyAnnotation, on a PersistentVolume, is the reclaim policy that it had before, and gets back.
	policyAnnotation = v1.GroupName + "/reclaim-policy-before"
)

// keepData makes sure that the PersistentVolume of a server's claim outlives the claim.
func (r *Controller) keepData(ctx context.Context, s *v1.NFSServer) error {
	claim := r.claim(s)
	if s.Spec.Storage == nil || claim == nil || claim.Spec.VolumeName == "" {
		return nil
	}
	if _, kept := r.kept.Load(claim.UID); kept {
		return nil
	}
	pv, err := r.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("PersistentVolume %s of claim %s cannot be kept from going with it: %w", claim.Spec.VolumeName, claim.Name, err)
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil // it is not bound yet
	}
	policy := core.PersistentVolumeReclaimRetain
	if pv.Annotations[dataAnnotation] != keyOf(s).String() || pv.Spec.PersistentVolumeReclaimPolicy != policy {
		annotations := map[string]any{dataAnnotation: keyOf(s).String()}
		if pv.Annotations[policyAnnotation] == "" {
			annotations[policyAnnotation] = string(pv.Spec.PersistentVolumeReclaimPolicy)
		}
		if err := r.patchPersistentVolume(ctx, pv, annotations, map[string]any{"persistentVolumeReclaimPolicy": policy}); err != nil {
			return err
		}
	}
	r.kept.Store(claim.UID, true)
	return nil
}

// releaseData gives a PersistentVolume back the policy that it had: its server is gone, and no volume is in it. What has
// no claim any more stays, unless it was to go with the server.
func (r *Controller) releaseData(ctx context.Context, s *v1.NFSServer) (waiting string, err error) {
	pv, err := r.dataOf(ctx, s)
	if pv == nil || err != nil {
		return "", err
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		r.kept.Delete(ref.UID)
	}
	spec := map[string]any{}
	_, err = r.Kubernetes.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, claimName(s), metav1.GetOptions{})
	if before := pv.Annotations[policyAnnotation]; before != "" && (err == nil || s.Spec.ReclaimPolicy == core.PersistentVolumeReclaimDelete) {
		spec["persistentVolumeReclaimPolicy"] = before
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	return "", r.patchPersistentVolume(ctx, pv, map[string]any{dataAnnotation: nil, policyAnnotation: nil}, spec)
}

// dataOf finds the PersistentVolume that was kept for a server, nil if there is none.
func (r *Controller) dataOf(ctx context.Context, s *v1.NFSServer) (found *core.PersistentVolume, err error) {
	err = r.eachPersistentVolume(ctx, func(pv *core.PersistentVolume) {
		ref := pv.Spec.ClaimRef
		if pv.Annotations[dataAnnotation] == keyOf(s).String() && ref != nil && ref.Namespace == s.Namespace && ref.Name == claimName(s) {
			found = pv
		}
	})
	return found, err
}

func (r *Controller) eachPersistentVolume(ctx context.Context, see func(*core.PersistentVolume)) error {
	const page = 500
	all := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return r.Kubernetes.CoreV1().PersistentVolumes().List(ctx, o)
	}))
	all.PageSize = page
	return all.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if pv, is := o.(*core.PersistentVolume); is {
			see(pv)
		}
		return nil
	})
}

func (r *Controller) patchPersistentVolume(ctx context.Context, pv *core.PersistentVolume, annotations, spec map[string]any) error {
	metadata := map[string]any{"uid": pv.UID, "resourceVersion": pv.ResourceVersion}
	if annotations != nil { // null would take all away
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return err
	}
	_, err = r.Kubernetes.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: apply.FieldManager})
	if err != nil {
		return fmt.Errorf("PersistentVolume %s, which has the data of NFS server %s: %w", pv.Name, pv.Annotations[dataAnnotation], err)
	}
	return nil
}

// remakeClaim makes the claim of a server, for the data that was kept if there is some.
func (r *Controller) remakeClaim(ctx context.Context, s *v1.NFSServer) error {
	claim := claimFor(s)
	pv, err := r.dataOf(ctx, s)
	if err != nil {
		return err
	}
	if pv != nil {
		// Without the UID of the claim that is gone it may be bound to the one that follows.
		spec := map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}}
		if err := r.patchPersistentVolume(ctx, pv, nil, spec); err != nil {
			return err
		}
		has := pv.Spec.Capacity[core.ResourceStorage]
		if asked := claim.Spec.Resources.Requests[core.ResourceStorage]; asked.Cmp(has) > 0 {
			claim.Spec.Resources.Requests[core.ResourceStorage] = has // it grows when it is bound
		}
		claim.Spec.VolumeName, claim.Spec.StorageClassName = pv.Name, &pv.Spec.StorageClassName
		claim.Spec.VolumeMode, claim.Spec.AccessModes = pv.Spec.VolumeMode, pv.Spec.AccessModes
	}
	if _, err := r.Kubernetes.CoreV1().PersistentVolumeClaims(s.Namespace).Create(ctx, claim, metav1.CreateOptions{FieldManager: apply.FieldManager}); err != nil {
		return fmt.Errorf("claim %s cannot be made: %w", claim.Name, err)
	}
	if pv != nil {
		r.Events.Event(s, core.EventTypeWarning, "ClaimRestored",
			fmt.Sprintf("claim %s was deleted; its data was kept in PersistentVolume %s, and the claim was made again for it", claim.Name, pv.Name))
	}
	return nil
}
