package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// UnreadableMessage explains that an object cannot be decoded.
func UnreadableMessage(o v1beta1.Object) string {
	return fmt.Sprintf("%v. Until that is corrected this object is not reconciled, and its resources stay as they are", o.Unreadable())
}

// UnreadableReporter reports objects that cannot be decoded. Its zero value is ready for use.
type UnreadableReporter struct {
	mu       sync.Mutex
	reported map[types.UID]string // last reports of objects that the API server lets no client write
}

// Report writes into the status of an object why it cannot be decoded, with a patch of its conditions, phase and
// generation only: Ready is False, and so is Complete, or Degraded is True. It returns nil if that was reported before,
// and otherwise the newest object, about which the caller records an event. An object with a value of a type that
// contradicts the schema can only have the event: the API server refuses every write of it.
func (r *UnreadableReporter) Report(ctx context.Context, client holdfast.Interface, o v1beta1.Object, manager string) (v1beta1.Object, error) {
	conditions, next := target(o)
	next.Message, next.Reason, next.ObservedGeneration = UnreadableMessage(o), v1beta1.ReasonUnreadable, o.GetGeneration()
	ready := next
	ready.Type, ready.Status = v1beta1.ReadyCondition, metav1.ConditionFalse
	all := slices.Clone(conditions)
	changed := meta.SetStatusCondition(&all, next)
	if !meta.SetStatusCondition(&all, ready) && !changed {
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
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}, "status": status,
	})
	if err != nil {
		return nil, err
	}
	written, err := patch(ctx, client, o, data, metav1.PatchOptions{FieldManager: manager})
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported = map[types.UID]string{}
	}
	message := UnreadableMessage(o)
	was := r.reported[o.GetUID()]
	r.reported[o.GetUID()] = message
	return was != message
}

// target returns the conditions of an object, and the one that reports that it cannot be decoded: Ready, or the one that
// Ready follows from.
func target(o v1beta1.Object) (all []metav1.Condition, one metav1.Condition) {
	ready := metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse}
	degraded := metav1.Condition{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue}
	complete := metav1.Condition{Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse}
	switch o := o.(type) {
	case *v1beta1.StorageCluster:
		return o.Status.Conditions, degraded
	case *v1beta1.NFSServer:
		return o.Status.Conditions, degraded
	case *v1beta1.StorageUpgrade:
		return o.Status.Conditions, complete
	case *v1beta1.NodeJob:
		return o.Status.Conditions, complete
	case *v1beta1.StorageNode:
		return o.Status.Conditions, ready
	case *v1beta1.Volume:
		return o.Status.Conditions, ready
	case *v1beta1.Snapshot:
		return o.Status.Conditions, ready
	}
	return nil, ready
}

func patch(ctx context.Context, client holdfast.Interface, o v1beta1.Object, data []byte, options metav1.PatchOptions) (v1beta1.Object, error) {
	kinds, name, status := client.HoldfastV1beta1(), o.GetName(), "status"
	switch o.(type) {
	case *v1beta1.StorageCluster:
		return kinds.StorageClusters().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.NFSServer:
		return kinds.NFSServers(o.GetNamespace()).Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.StorageUpgrade:
		return kinds.StorageUpgrades().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.NodeJob:
		return kinds.NodeJobs().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.StorageNode:
		return kinds.StorageNodes().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.Volume:
		return kinds.Volumes().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1beta1.Snapshot:
		return kinds.Snapshots().Patch(ctx, name, types.MergePatchType, data, options, status)
	}
	return nil, fmt.Errorf("%T is no kind of %s", o, v1beta1.GroupName)
}
