package volume

import (
	"encoding/json"
	"fmt"
	"maps"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// A claim keeps its volume until it ends. So the claim of a volume that is given up is deleted and, when its last pod
// is gone, recreated as it was: it then gets a new, empty volume where its next pod can run.
//
// Until then the volume's object keeps the claim in an annotation, and a finalizer of its own keeps the object: the
// claim is recreated even after a crash in between, and whether or not the node returns.
const (
	renewalAnnotation = "holdfast.dev/renew-claim"
	renewalFinalizer  = "holdfast.dev/renew-claim"
)

// bindingAnnotations are what a claim got with its volume.
var bindingAnnotations = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
	"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-resizer",
	"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner",
}

// byRenewedClaim indexes the volumes that keep their claim, by its NAMESPACE/NAME.
const byRenewedClaim = "renewed-claim"

func renewedClaim(o any) ([]string, error) {
	v := o.(*v1beta1.Volume)
	if v.Annotations[renewalAnnotation] == "" {
		return nil, nil
	}
	return []string{v.Spec.Labels[v1beta1.ClaimNamespaceLabel] + "/" + v.Spec.Labels[v1beta1.ClaimNameLabel]}, nil
}

// needsRenewal says whether a volume was given up and keeps its claim.
func needsRenewal(v *v1beta1.Volume) bool {
	return v.Annotations[renewalAnnotation] != "" && v.DeletionTimestamp != nil && v.DeletionRequested()
}

// needsClaim says whether the plan for a volume depends on its claim.
func (o nodeObserved) needsClaim(v *v1beta1.Volume) bool {
	return needsRenewal(v) || v.Annotations[renewalAnnotation] == "" && v.DeletionTimestamp == nil && v.Spec.Labels[v1beta1.ClaimNameLabel] != "" &&
		o.isSilent() && o.outage().volumeAction(v, o.moved[v.Status.PoolID]) == giveUp
}

// renewable leaves alone a claim that has another volume, that its user has deleted, or that ends with its pod.
func renewable(claim *core.PersistentVolumeClaim, v *v1beta1.Volume) bool {
	owner := metav1.GetControllerOf(claim)
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName != "" && claim.Spec.VolumeName == v.Spec.Labels[v1beta1.PersistentVolumeLabel] &&
		(owner == nil || owner.Kind != "Pod")
}

// again is a claim without its volume and content. Its UID is still that of the old one.
func again(claim *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	next := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Name, Namespace: claim.Namespace, UID: claim.UID, Labels: claim.Labels,
			Annotations: maps.Clone(claim.Annotations), OwnerReferences: claim.OwnerReferences,
		},
		Spec: *claim.Spec.DeepCopy(),
	}
	for _, key := range bindingAnnotations {
		delete(next.Annotations, key)
	}
	next.Spec.VolumeName, next.Spec.DataSource, next.Spec.DataSourceRef = "", nil, nil
	return next
}

// renewal is what to do next about the claim that a volume keeps. Without any of it, pods still use the old claim.
type renewal struct {
	volume *v1beta1.Volume
	delete *core.PersistentVolumeClaim // the old one
	create *core.PersistentVolumeClaim // the new one
	finish bool                        // the volume need not keep the claim any longer
}

// planRenewal decides by the claim that there is now, nil if there is none. One that another controller, such as the
// StatefulSet's, has recreated is left alone.
func planRenewal(v *v1beta1.Volume, claim *core.PersistentVolumeClaim) (renewal, error) {
	r, next := renewal{volume: v}, &core.PersistentVolumeClaim{}
	if err := json.Unmarshal([]byte(v.Annotations[renewalAnnotation]), next); err != nil {
		return r, fmt.Errorf("volume %s: annotation %s must hold a claim; remove it and the finalizer %s: %w", v.Name, renewalAnnotation, renewalFinalizer, err)
	}
	if err := isOwn(v, next); err != nil {
		return r, err
	}
	switch {
	case claim == nil:
		next.UID = ""
		r.create, r.finish = next, true
	case claim.UID != next.UID:
		r.finish = true
	case claim.DeletionTimestamp == nil:
		r.delete = claim
	}
	return r, nil
}

// isOwn fails if a claim to recreate is not one that this controller has written on the volume: an agent may write its
// Volumes, and must not get a claim made or deleted.
func isOwn(v *v1beta1.Volume, next *core.PersistentVolumeClaim) error {
	labels := v.Spec.Labels
	if next.Namespace == labels[v1beta1.ClaimNamespaceLabel] && next.Name == labels[v1beta1.ClaimNameLabel] &&
		next.Spec.VolumeName == "" && next.Spec.DataSource == nil && next.Spec.DataSourceRef == nil {
		return nil
	}
	return fmt.Errorf("volume %s: annotation %s has another claim than that of the volume, %s/%s, without its content; remove it and the finalizer %s",
		v.Name, renewalAnnotation, labels[v1beta1.ClaimNamespaceLabel], labels[v1beta1.ClaimNameLabel], renewalFinalizer)
}

// isBound fails if a claim has another volume: labels and annotations of a Volume may be an agent's.
func isBound(v *v1beta1.Volume, claim *core.PersistentVolumeClaim, pv *core.PersistentVolume) error {
	ref, csi := pv.Spec.ClaimRef, pv.Spec.CSI
	if ref != nil && ref.UID == claim.UID && csi != nil && csi.Driver == v1beta1.DriverName && csi.VolumeHandle == v.Name {
		return nil
	}
	return fmt.Errorf("the claim is bound to PersistentVolume %s, which is of another volume: remove the annotation %s and the finalizer %s of Volume %s",
		backend.Quote(pv.Name), renewalAnnotation, renewalFinalizer, v.Name)
}
