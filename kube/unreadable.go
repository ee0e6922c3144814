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
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// UnreadableMessage is what to say of an object that cannot be decoded.
func UnreadableMessage(o v1.Object) string {
	return fmt.Sprintf("%v. Until that is corrected nothing is done for this object, and what there is of it stays", o.Unreadable())
}

// UnreadableReporter tells of objects that cannot be decoded. The zero value has told of none.
type UnreadableReporter struct {
	mu   sync.Mutex
	told map[types.UID]string // of which the API server refuses every write: what was told of them
}

// Report writes into the status of an object that cannot be decoded why that is, by a patch of the conditions alone. It
// returns nil if that was told already; if it returns an object, which is the newest, an event is due. The API server
// refuses every write of an object with a value of another type than the schema has: of that there is only the event.
func (r *UnreadableReporter) Report(ctx context.Context, client holdfast.Interface, o v1.Object, manager string) (v1.Object, error) {
	conditions, next := target(o)
	next.Message, next.Reason, next.ObservedGeneration = UnreadableMessage(o), v1.ReasonUnreadable, o.GetGeneration()
	all := slices.Clone(conditions)
	if !meta.SetStatusCondition(&all, next) {
		return nil, nil
	}
	status := map[string]any{"conditions": all}
	switch o.(type) {
	case *v1.StorageCluster:
		status["phase"], status["observedGeneration"] = v1.ClusterDegraded, o.GetGeneration()
	case *v1.NFSServer:
		status["phase"], status["observedGeneration"] = v1.NFSDegraded, o.GetGeneration()
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}, "status": status,
	})
	if err != nil {
		return nil, err
	}
	written, err := patch(ctx, client, o, data, metav1.PatchOptions{FieldManager: manager})
	switch {
	case apierrors.IsInvalid(err) && r.isNews(o):
		return o, nil
	case apierrors.IsInvalid(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s cannot be decoded (%w), and its status could not be written: %w", o.GetName(), o.Unreadable(), err)
	}
	return written, nil
}

func (r *UnreadableReporter) isNews(o v1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[types.UID]string{}
	}
	message := UnreadableMessage(o)
	was := r.told[o.GetUID()]
	r.told[o.GetUID()] = message
	return was != message
}

// target is the conditions of an object, and the one that tells.
func target(o v1.Object) (all []metav1.Condition, one metav1.Condition) {
	ready := metav1.Condition{Type: v1.ReadyCondition, Status: metav1.ConditionFalse}
	degraded := metav1.Condition{Type: v1.DegradedCondition, Status: metav1.ConditionTrue}
	complete := metav1.Condition{Type: v1.CompleteCondition, Status: metav1.ConditionFalse}
	switch o := o.(type) {
	case *v1.StorageCluster:
		return o.Status.Conditions, degraded
	case *v1.NFSServer:
		return o.Status.Conditions, degraded
	case *v1.StorageUpgrade:
		return o.Status.Conditions, complete
	case *v1.NodeJob:
		return o.Status.Conditions, complete
	case *v1.StorageNode:
		return o.Status.Conditions, ready
	case *v1.Volume:
		return o.Status.Conditions, ready
	case *v1.Snapshot:
		return o.Status.Conditions, ready
	}
	return nil, ready
}

func patch(ctx context.Context, client holdfast.Interface, o v1.Object, data []byte, options metav1.PatchOptions) (v1.Object, error) {
	kinds, name, status := client.HoldfastV1(), o.GetName(), "status"
	switch o.(type) {
	case *v1.StorageCluster:
		return kinds.StorageClusters().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.NFSServer:
		return kinds.NFSServers(o.GetNamespace()).Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.StorageUpgrade:
		return kinds.StorageUpgrades().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.NodeJob:
		return kinds.NodeJobs().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.StorageNode:
		return kinds.StorageNodes().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.Volume:
		return kinds.Volumes().Patch(ctx, name, types.MergePatchType, data, options, status)
	case *v1.Snapshot:
		return kinds.Snapshots().Patch(ctx, name, types.MergePatchType, data, options, status)
	}
	return nil, fmt.Errorf("%T is no kind of %s", o, v1.GroupName)
}
