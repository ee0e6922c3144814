package admin

import (
	"context"
	"encoding/json"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// bind writes what is missing, the PersistentVolume first: a claim whose volumeName does not exist waits, while one
// without a volumeName may be bound to another volume.
func (a *Admin) bind(ctx context.Context, volume string, b *binding) error {
	claims := a.Kubernetes.CoreV1().PersistentVolumeClaims(b.claim.Namespace)
	key := b.claim.Namespace + "/" + b.claim.Name
	if b.newClaim { // a missing namespace or an exceeded quota is reported before anything is created
		if _, err := claims.Create(ctx, b.claim, metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}}); err != nil {
			return fmt.Errorf("claim %s cannot be created, and nothing is changed: %w", key, err)
		}
	}
	if err := a.writePersistentVolume(ctx, b); err != nil {
		return err
	}
	// Its PersistentVolume keeps the volume, unless its deletion was requested before that was written.
	v, err := a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, volume, metav1.GetOptions{})
	if err != nil {
		err = a.absent(ctx, volume, err)
	} else {
		err = refuseDeleted(v)
	}
	if err != nil {
		return fmt.Errorf("%w. PersistentVolume %s names it; if it is not to be used: kubectl delete persistentvolume %s", err, b.pv.Name, b.pv.Name)
	}
	switch {
	case b.newClaim:
		_, err := claims.Create(ctx, b.claim, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("claim %s could not be created; PersistentVolume %s waits for it, run this again: %w", key, b.pv.Name, err)
		}
	case b.setName:
		patch, err := claimPatch(b)
		if err != nil {
			return err
		}
		if _, err := claims.Patch(ctx, b.claim.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("claim %s could not be given PersistentVolume %s; run this again: %w", key, b.pv.Name, err)
		}
	}
	return a.awaitBound(ctx, b)
}

func claimPatch(b *binding) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": b.claim.UID}, "spec": map[string]any{"volumeName": b.pv.Name}})
}

func (a *Admin) writePersistentVolume(ctx context.Context, b *binding) error {
	all := a.Kubernetes.CoreV1().PersistentVolumes()
	var err error
	switch {
	case b.newPV:
		_, err = all.Create(ctx, b.pv, metav1.CreateOptions{FieldManager: fieldManager})
	case b.pvPatch != nil:
		_, err = all.Patch(ctx, b.pv.Name, types.MergePatchType, b.pvPatch, metav1.PatchOptions{FieldManager: fieldManager})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("PersistentVolume %s was created or changed by another client; run this again: %w", b.pv.Name, err)
	}
	if err != nil {
		return fmt.Errorf("PersistentVolume %s could not be written: %w", b.pv.Name, err)
	}
	return nil
}

func (a *Admin) awaitBound(ctx context.Context, b *binding) error {
	claims, name := a.Kubernetes.CoreV1().PersistentVolumeClaims(b.claim.Namespace), b.claim.Name
	key := b.claim.Namespace + "/" + name
	return a.follow(ctx, following(claims, name), func(o runtime.Object) (bool, string, error) {
		c, _ := o.(*core.PersistentVolumeClaim)
		switch {
		case c == nil:
			return false, "", fmt.Errorf("claim %s was deleted while it was being bound; PersistentVolume %s still exists", key, b.pv.Name)
		case c.Spec.VolumeName != "" && c.Spec.VolumeName != b.pv.Name:
			return false, "", fmt.Errorf("claim %s was bound to PersistentVolume %s instead, and %s is not bound: delete the latter", key, c.Spec.VolumeName, b.pv.Name)
		}
		return c.Status.Phase == core.ClaimBound, fmt.Sprintf("claim %s is %s; kubectl describe pvc -n %s %s shows why", key, c.Status.Phase, c.Namespace, c.Name), nil
	})
}

// print prints the objects for kubectl apply -f -. What apply cannot do is printed as a comment.
func (a *Admin) print(b *binding) error {
	for _, note := range b.notes {
		a.sayf("# %s", note)
	}
	if b.pvPatch != nil {
		a.sayf("# first: kubectl patch persistentvolume %s --type merge --patch '%s'", b.pv.Name, b.pvPatch)
	}
	if b.newPV {
		b.pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
		if err := a.printOne(b.pv); err != nil {
			return err
		}
	}
	switch {
	case b.newClaim:
		b.claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		return a.printOne(b.claim)
	case b.setName:
		patch, err := claimPatch(b)
		if err != nil {
			return err
		}
		a.sayf("# then: kubectl patch persistentvolumeclaim -n %s %s --type merge --patch '%s'", b.claim.Namespace, b.claim.Name, patch)
	default:
		a.sayf("# claim %s/%s names PersistentVolume %s already", b.claim.Namespace, b.claim.Name, b.pv.Name)
	}
	return a.unsaid
}

func (a *Admin) printOne(o runtime.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	delete(fields, "status")
	out, err := yaml.Marshal(fields)
	if err != nil {
		return err
	}
	a.sayf("---\n%s", out)
	return a.unsaid
}
