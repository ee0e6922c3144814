package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// agentsTurn is how long an agent has to carry out a request to delete data before the object is deleted anyway. The
// data then stays, and the agent adopts it.
const agentsTurn = time.Minute

// release removes the finalizers of the objects of a kind. Other kinds have none, or their controllers remove them.
func (r *Controller) release(ctx context.Context, name string) error {
	let, ok := map[string]func(context.Context, *unstructured.Unstructured) error{
		volumes: r.releaseStored, snapshots: r.releaseStored, storageClusters: r.releaseKept, nfsServers: r.releaseKept,
	}[name]
	if !ok {
		return nil
	}
	if name == storageClusters {
		r.returning.Store(true)
	}
	all, err := r.Dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource(resourceOf(name))).List(ctx, metav1.ListOptions{})
	if err != nil {
		return kube.IgnoreGone(err)
	}
	var failed []error
	for i := range all.Items {
		if all.Items[i].GetDeletionTimestamp() != nil { // the others follow
			failed = append(failed, kube.IgnoreGone(let(ctx, &all.Items[i])))
		}
	}
	return errors.Join(failed...)
}

// releaseStored removes the finalizer of a Volume or a Snapshot. Its data is on a disk, and the agent writes the object
// again.
func (r *Controller) releaseStored(ctx context.Context, o *unstructured.Unstructured) error {
	if _, requested, _ := unstructured.NestedMap(o.Object, "spec", "deletion"); requested && time.Since(o.GetDeletionTimestamp().Time) < agentsTurn {
		return nil
	}
	return r.takeFinalizer(ctx, o, v1beta1.AgentFinalizer)
}

// releaseKept removes the finalizer of a StorageCluster or an NFSServer that is stored and owns nothing.
func (r *Controller) releaseKept(ctx context.Context, o *unstructured.Unstructured) error {
	if !slices.Contains(o.GetFinalizers(), v1beta1.OperatorFinalizer) {
		return nil
	}
	if err := r.keep(ctx, o); err != nil {
		return err
	}
	waits := false
	for _, owner := range r.Owners {
		for _, part := range owner.OwnedBy(o.GetUID()) {
			waits = true // until it is released
			if err := owner.Disown(ctx, part); err != nil {
				return err
			}
		}
	}
	if waits {
		return nil
	}
	return r.takeFinalizer(ctx, o, v1beta1.OperatorFinalizer)
}

// takeFinalizer fails if another client has written to the object in between.
func (r *Controller) takeFinalizer(ctx context.Context, o *unstructured.Unstructured, finalizer string) error {
	kind := r.Dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource(resourceOf(plurals[o.GetKind()]))).Namespace(o.GetNamespace())
	removed, err := kube.RemoveFinalizer(ctx, kind.Patch, o, finalizer, apply.FieldManager)
	if kube.IgnoreGone(err) != nil {
		return fmt.Errorf("the finalizer %s of %s %s: %w", finalizer, o.GetKind(), o.GetName(), err)
	}
	if removed {
		r.Log.Info("removed the finalizer, since its kind is being deleted", "kind", o.GetKind(), "namespace", o.GetNamespace(), "name", o.GetName())
	}
	return nil
}

var plurals = map[string]string{"Volume": volumes, "Snapshot": snapshots, "StorageCluster": storageClusters, "NFSServer": nfsServers}
