package admin

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// naming is a PersistentVolume of a Volume, with the claim in its claimRef.
type naming struct {
	*core.PersistentVolume
	claim *core.PersistentVolumeClaim // nil: it does not exist
}

func (n naming) bound() bool { return n.claim != nil }

// released returns whether the PersistentVolume was bound and its claim does not exist any more.
func (n naming) released() bool {
	if n.bound() {
		return false
	}
	phase := n.Status.Phase
	return phase == core.VolumeReleased || phase == core.VolumeFailed || n.Spec.ClaimRef != nil && n.Spec.ClaimRef.UID != ""
}

func (a *Admin) persistentVolumes(ctx context.Context) ([]core.PersistentVolume, error) {
	list, err := a.Kubernetes.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the PersistentVolumes could not be listed, which say whether the volume is in use: %w", err)
	}
	return list.Items, nil
}

// namingOf returns those PersistentVolumes that refer to a Volume, but for the one by which a pod brings its content: that goes
// with the Volume.
func (a *Admin) namingOf(ctx context.Context, v *v1beta1.Volume, all []core.PersistentVolume) (found []naming, err error) {
	for i := range all {
		if !persistent.Names(v, &all[i]) || v.IsBeingPopulated() && all[i].Labels[v1beta1.CopyLabel] != "" {
			continue
		}
		n := naming{PersistentVolume: &all[i]}
		if n.claim, err = a.claimOf(ctx, n.PersistentVolume); err != nil {
			return nil, err
		}
		found = append(found, n)
	}
	return found, nil
}

// claimOf returns the claim in the claimRef of a PersistentVolume; nil if it does not exist, or has another UID.
func (a *Admin) claimOf(ctx context.Context, pv *core.PersistentVolume) (*core.PersistentVolumeClaim, error) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	claim, err := a.claim(ctx, ref.Namespace, ref.Name)
	if claim == nil || err != nil || ref.UID != "" && ref.UID != claim.UID {
		return nil, err
	}
	return claim, nil
}

// claim returns nil if the claim does not exist.
func (a *Admin) claim(ctx context.Context, namespace, name string) (*core.PersistentVolumeClaim, error) {
	claim, err := kube.Live(ctx, a.Kubernetes.CoreV1().PersistentVolumeClaims(namespace).Get, name)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s could not be read: %w", namespace, name, err)
	}
	return claim, nil
}
