package cluster

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// defaultRemakeAfter is the delay before the controller recreates its own workload after a deletion. helm uninstall and
// kubectl delete delete its account and its rights next, without which a workload that was recreated at once would be
// left behind. It is recreated if they still exist then. A process whose pod is deleted with the workload waits that
// long before it ends.
const defaultRemakeAfter = 5 * time.Second

// remakeLasts is how long recreating it may take at the end of this process.
const remakeLasts = 5 * time.Second

// own is the controller's own workload, which may be of either kind, or empty if there is none.
func (r *Controller) own() map[apply.Ref]types.UID {
	own := map[apply.Ref]types.UID{}
	for _, ref := range controllerRefs(r.Namespace) {
		if o := r.Owned.Get(ref); o != nil {
			own[ref] = o.GetUID()
		}
	}
	return own
}

func (r *Controller) hasOwn() bool { return len(r.own()) > 0 }

// tied keeps the controller's workload that exists from being created again, if it is deleted before it is applied.
func tied(objects []*unstructured.Unstructured, own map[apply.Ref]types.UID) []*unstructured.Unstructured {
	objects = slices.Clone(objects)
	for i, o := range objects {
		if uid := own[apply.RefOf(o)]; uid != "" {
			objects[i] = o.DeepCopy()
			objects[i].SetUID(uid)
		}
	}
	return objects
}

// withoutOwn leaves the controller's workload out of the objects to apply during the delay after its deletion; again is
// the rest of that delay. A workload that this process has never seen or created is created at once.
func (r *Controller) withoutOwn(ctx context.Context, objects []*unstructured.Unstructured) (rest []*unstructured.Unstructured, again time.Duration, err error) {
	own := r.own()
	switch {
	case len(own) > 0:
		r.ownSeen, r.ownGone = true, time.Time{}
		return tied(objects, own), 0, nil
	case !r.ownSeen:
		return objects, 0, nil
	case r.ownGone.IsZero():
		r.ownGone = time.Now()
	}
	if again = r.RemakeAfter - time.Since(r.ownGone); again <= 0 {
		stays, err := r.accountStays(ctx)
		if err != nil || stays {
			r.ownGone = time.Now() // what is deleted before the cache has seen it made is waited for again
			return objects, 0, err
		}
		again = kube.RetryRefused
	}
	return slices.DeleteFunc(slices.Clone(objects), isControllerWorkload), again, nil
}

// accountStays says whether the account of the controller exists and is not being deleted.
func (r *Controller) accountStays(ctx context.Context) (bool, error) {
	account, err := kube.Live(ctx, r.Kubernetes.CoreV1().ServiceAccounts(r.Namespace).Get, v1beta1.ControllerName)
	return account != nil && account.DeletionTimestamp == nil, err
}

// remakeOwn recreates the controller's workload at the end of this process, if it is gone: no other process would, as
// all pods are deleted with it.
func (r *Controller) remakeOwn(ctx context.Context) error {
	served := v1beta1.Served(kube.Cached(r.clusters.List))
	if !r.ownSeen || r.hasOwn() || served == nil || served.DeletionTimestamp != nil || served.Spec.Paused || served.Unreadable() != nil {
		return nil
	}
	gone := r.ownGone
	if gone.IsZero() {
		gone = time.Now()
	}
	over := time.NewTimer(time.Until(gone.Add(r.RemakeAfter)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := r.Client.HoldfastV1beta1().StorageClusters().Get(ctx, served.Name, metav1.GetOptions{})
	if err != nil || now.UID != served.UID || now.DeletionTimestamp != nil {
		return kube.IgnoreNotFound(err)
	}
	if stays, err := r.accountStays(ctx); err != nil || !stays {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(r.good[served.Name]), func(o *unstructured.Unstructured) bool { return !isControllerWorkload(o) })
	return r.apply(ctx, served, own).Err()
}
