package definitions

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/bootstrap"
)

// lookAgain is when to reconcile a kind again that is being deleted: its objects are deleted one by one.
const lookAgain = time.Second

// reconcile reconciles one kind.
func (r *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	d := r.get(name)
	if d != nil && r.OnlyMissing {
		return 0, nil
	}
	if d != nil && d.GetDeletionTimestamp() == nil {
		if name == storageClusters {
			r.returning.Store(false)
		}
		if !kube.HasCondition(d, "Established") {
			return 0, nil // the next change reconciles it
		}
		if err := r.restore(ctx, name); err != nil {
			return 0, err
		}
		r.restored.Store(name, d.GetUID())
		return 0, nil
	}
	leaves, err := r.uninstalling(ctx)
	if err != nil || leaves {
		return 0, err
	}
	if d == nil {
		return 0, r.create(ctx, name)
	}
	r.Log.Warn("a kind of Holdfast was deleted while Holdfast is installed; the finalizers of its objects are removed, and it is recreated. No data is touched", "kind", name)
	return lookAgain, r.release(ctx, name)
}

// uninstalling says whether all of Holdfast is being removed: its namespace or account is being deleted, or belongs to a
// StorageCluster that is gone.
func (r *Controller) uninstalling(ctx context.Context) (bool, error) {
	ns, err := kube.Live(ctx, r.Kubernetes.CoreV1().Namespaces().Get, r.Namespace)
	if err != nil {
		return false, fmt.Errorf("whether Holdfast is installed: %w", err)
	}
	if ns == nil || ns.DeletionTimestamp != nil {
		return true, nil
	}
	if !bootstrap.BelongsToCluster(ns) { // as one that Helm installs into
		account, err := kube.Live(ctx, r.Kubernetes.CoreV1().ServiceAccounts(r.Namespace).Get, v1beta1.ControllerName)
		if err != nil {
			return false, fmt.Errorf("whether Holdfast is installed: %w", err)
		}
		if account == nil || !bootstrap.BelongsToCluster(account) {
			return account == nil, nil
		}
	}
	all, err := r.Client.HoldfastV1beta1().StorageClusters().List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("whether Holdfast is installed: %w", err)
	}
	return len(all.Items) == 0, nil
}

func (r *Controller) create(ctx context.Context, name string) error {
	for _, d := range deploy.Definitions() {
		if d.GetName() != name {
			continue
		}
		if _, err := bootstrap.Apply(ctx, r.Dynamic.Resource(kube.Definitions), d, r.helmRelease(name)); err != nil {
			return fmt.Errorf("making kind %s: %w", name, err)
		}
		r.Log.Warn("recreated a missing kind", "kind", name)
	}
	return nil
}
