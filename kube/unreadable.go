package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// UnreadableMessage explains that an object cannot be decoded.
func UnreadableMessage(o v1beta1.Object) string {
	return fmt.Sprintf("%v. Until that is corrected this object is not reconciled, and its resources stay as they are", o.Unreadable())
}

// UnreadableReporter reports objects that cannot be decoded. Its zero value is ready for use.
type UnreadableReporter struct {
	reported sync.Map // last reports, by UID, of objects that the API server lets no client write
}

// Report writes into the status of an object why it cannot be decoded, with a patch of its conditions, phase and
// generation only: Ready is False, and so is Complete, or Degraded is True, and an object whose spec users write is Stalled. It
// returns nil if that was reported before, and otherwise the newest object, about which the caller records an event. An
// object with a value of a type that contradicts the schema can only have the event: the API server refuses every write of it.
func (r *UnreadableReporter) Report(ctx context.Context, client holdfast.Interface, o v1beta1.Object, manager string) (v1beta1.Object, error) {
	conditions, next, patch := target(client.HoldfastV1beta1(), o)
	next.Message, next.Reason, next.ObservedGeneration = UnreadableMessage(o), v1beta1.ReasonUnreadable, o.GetGeneration()
	ready, stalled := next, next
	ready.Type, ready.Status = v1beta1.ReadyCondition, metav1.ConditionFalse
	stalled.Type, stalled.Status = v1beta1.StalledCondition, metav1.ConditionTrue
	all := slices.Clone(conditions)
	changed := meta.SetStatusCondition(&all, next)
	changed = meta.SetStatusCondition(&all, ready) || changed
	if next.Type != v1beta1.ReadyCondition { // users write its spec
		changed = meta.SetStatusCondition(&all, stalled) || changed
	}
	if !changed {
		return nil, nil
	}
	status := map[string]any{"conditions": all, "observedGeneration": o.GetGeneration()}
	switch o.(type) {
	case *v1beta1.StorageCluster:
		status["phase"] = v1beta1.ClusterDegraded
	case *v1beta1.NFSServer:
		status["phase"] = v1beta1.NFSDegraded
	case *v1beta1.Volume, *v1beta1.Snapshot:
		delete(status, "observedGeneration") // it would say that a change of the spec was carried out
	}
	change := map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}, "status": status}
	written, err := MergePatch(ctx, patch, o.GetName(), change, manager, "status")
	switch {
	case apierrors.IsInvalid(err) && r.isNew(o):
		return o, nil
	case apierrors.IsInvalid(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s cannot be decoded (%w), and its status could not be written: %w", o.GetName(), o.Unreadable(), err)
	}
	return written, nil
}

func (r *UnreadableReporter) isNew(o v1beta1.Object) bool {
	message := UnreadableMessage(o)
	was, _ := r.reported.Swap(o.GetUID(), message)
	return was != message
}

// target returns the conditions of an object, the one that reports that it cannot be decoded, which is Ready or the one that
// Ready follows from, and the function that writes them.
func target(kinds typed.HoldfastV1beta1Interface, o v1beta1.Object) (all []metav1.Condition, one metav1.Condition, write PatchFunc[v1beta1.Object]) {
	ready := metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse}
	degraded := metav1.Condition{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue}
	complete := metav1.Condition{Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse}
	switch o := o.(type) {
	case *v1beta1.StorageCluster:
		return o.Status.Conditions, degraded, patchOf(kinds.StorageClusters().Patch)
	case *v1beta1.NFSServer:
		return o.Status.Conditions, degraded, patchOf(kinds.NFSServers(o.Namespace).Patch)
	case *v1beta1.StorageUpgrade:
		return o.Status.Conditions, complete, patchOf(kinds.StorageUpgrades().Patch)
	case *v1beta1.NodeJob:
		return o.Status.Conditions, complete, patchOf(kinds.NodeJobs().Patch)
	case *v1beta1.StorageNode:
		return o.Status.Conditions, ready, patchOf(kinds.StorageNodes().Patch)
	case *v1beta1.Volume:
		return o.Status.Conditions, ready, patchOf(kinds.Volumes().Patch)
	case *v1beta1.Snapshot:
		return o.Status.Conditions, ready, patchOf(kinds.Snapshots().Patch)
	}
	return nil, ready, func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (v1beta1.Object, error) {
		return nil, fmt.Errorf("%T is no kind of %s", o, v1beta1.GroupName)
	}
}

func patchOf[T v1beta1.Object](patch PatchFunc[T]) PatchFunc[v1beta1.Object] {
	return func(ctx context.Context, name string, form types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (v1beta1.Object, error) {
		return patch(ctx, name, form, data, o, subresources...)
	}
}
