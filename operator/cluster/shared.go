package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// labelNodes labels each Node with whether shared volumes can be mounted there, so that classes and pods can select such
// nodes.
func (r *Controller) labelNodes(ctx context.Context, shared map[string]string) error {
	var failed []error
	for node, value := range shared {
		failed = append(failed, r.label(ctx, node, map[string]any{v1beta1.SharedVolumesKey: value}))
	}
	return errors.Join(failed...)
}

// label changes labels of a Node; nil removes one.
func (r *Controller) label(ctx context.Context, node string, change map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
	if err != nil {
		return err
	}
	_, err = r.Kubernetes.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: apply.FieldManager})
	if err = kube.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("the labels of node %s: %w", node, err)
	}
	return nil
}

func canMountShared(n *v1beta1.StorageNode) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.SharedVolumesCondition); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}
