package nfsserver

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// claimFor is the claim that a server asks for.
func claimFor(s *v1.NFSServer) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		// It has no owner: what becomes of it is for reclaimPolicy to say, not for the garbage collector.
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: objectName(s), Labels: labelsOf(s)},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			StorageClassName: s.Spec.Storage.StorageClassName,
			Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: *s.Spec.Storage.Size}},
		},
	}
}

// isOurs says whether a claim was made for this server. One that outlived a server of the same name is taken again.
func isOurs(c *core.PersistentVolumeClaim, s *v1.NFSServer) bool {
	return c.Labels[apply.ManagedByLabel] == apply.FieldManager && c.Labels[Label] == s.Name
}

// grown returns the claim with what it must ask for, nil if it asks for that. It never shrinks: a hand may have grown it.
func grown(c *core.PersistentVolumeClaim, s *v1.NFSServer) *core.PersistentVolumeClaim {
	asked := c.Spec.Resources.Requests[core.ResourceStorage]
	if asked.Cmp(*s.Spec.Storage.Size) >= 0 {
		return nil
	}
	c = c.DeepCopy()
	c.Spec.Resources.Requests[core.ResourceStorage] = *s.Spec.Storage.Size
	return c
}

var errForeignClaim = errors.New("it exists and was not made for this server: name it in spec.storage.claimName of another server, or delete it")

// seeToClaim makes and grows the claim of a server. It is neither replaced nor put right otherwise: it holds the data.
func (r *Controller) seeToClaim(ctx context.Context, s *v1.NFSServer) error {
	if !makesClaim(s) {
		return nil
	}
	claims := r.Kubernetes.CoreV1().PersistentVolumeClaims(s.Namespace)
	if cached := r.claim(s); cached != nil && isOurs(cached, s) && grown(cached, s) == nil {
		return nil
	}
	live, err := claims.Get(ctx, objectName(s), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return r.remakeClaim(ctx, s)
	case err != nil:
		return err
	case !isOurs(live, s):
		return fmt.Errorf("claim %s: %w", live.Name, errForeignClaim)
	}
	if larger := grown(live, s); larger != nil {
		if _, err := claims.Update(ctx, larger, metav1.UpdateOptions{FieldManager: apply.FieldManager}); err != nil {
			return fmt.Errorf("claim %s cannot grow to %s: %w", live.Name, s.Spec.Storage.Size, err)
		}
	}
	return nil
}

// claim returns the claim that a server uses as it was last heard of, nil if there is none.
func (r *Controller) claim(s *v1.NFSServer) *core.PersistentVolumeClaim {
	name := claimName(s)
	if name == "" {
		return nil
	}
	c, err := r.Watches.Everywhere.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(s.Namespace).Get(name)
	if err != nil {
		return nil
	}
	return c
}

// removeClaim deletes the claim that was made for a server, if that is what its reclaimPolicy says. It returns what
// there is to wait for.
func (r *Controller) removeClaim(ctx context.Context, s *v1.NFSServer) (waiting string, err error) {
	if !makesClaim(s) || s.Spec.ReclaimPolicy != core.PersistentVolumeReclaimDelete {
		return "", nil
	}
	claims := r.Kubernetes.CoreV1().PersistentVolumeClaims(s.Namespace)
	live, err := claims.Get(ctx, objectName(s), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil || !isOurs(live, s) {
		return "", err
	}
	if live.DeletionTimestamp == nil {
		if err := claims.Delete(ctx, live.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(live.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("claim %s cannot be deleted: %w", live.Name, err)
		}
	}
	return "claim " + live.Name + " to go", nil
}
