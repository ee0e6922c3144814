package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// labelNodes says on each Node whether shared volumes can be mounted there, as its agent has found, so that classes and
// pods can keep to such nodes. The kubelet cannot say it: it would refuse the whole driver when the value changes.
// Where no agent has said anything, the label stays as it is.
func (r *Controller) labelNodes(ctx context.Context) error {
	storageNodes, _ := r.storageNodes.List(labels.Everything())
	var failed []error
	for _, s := range storageNodes {
		can := canMountShared(s)
		if can == metav1.ConditionUnknown {
			continue
		}
		n, err := r.nodes.Get(s.Name)
		if value := strconv.FormatBool(can == metav1.ConditionTrue); err == nil && n.Labels[v1.SharedVolumesKey] != value {
			failed = append(failed, r.label(ctx, n.Name, map[string]any{v1.SharedVolumesKey: value}))
		}
	}
	return errors.Join(failed...)
}

// label changes labels of a Node; nil takes one off.
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

func canMountShared(n *v1.StorageNode) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1.SharedVolumesCondition); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}
