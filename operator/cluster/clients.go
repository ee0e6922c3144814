package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// clientLabels returns the labels to change on each Node, by what its agent reports of the kernel's clients: so volumes,
// classes and pods can select nodes where volumes that are elsewhere can be used. Without a report a label stays. They are no
// topology keys of the driver, since the kubelet refuses a driver whose topology values change.
func (s *situation) clientLabels() map[string]map[string]any {
	change := map[string]map[string]any{}
	for name, n := range s.storageNodes {
		node := s.allNodes[name]
		if node == nil {
			continue
		}
		for condition, key := range v1beta1.ClientLabels {
			can := hasClient(n, condition)
			if value := strconv.FormatBool(can == metav1.ConditionTrue); can != metav1.ConditionUnknown && node.Labels[key] != value {
				if change[name] == nil {
					change[name] = map[string]any{}
				}
				change[name][key] = value
			}
		}
	}
	return change
}

func (r *Controller) labelNodes(ctx context.Context, change map[string]map[string]any) error {
	var failed []error
	for node, labels := range change {
		failed = append(failed, r.label(ctx, node, labels))
	}
	return errors.Join(failed...)
}

// label changes labels of a Node; nil removes one.
func (r *Controller) label(ctx context.Context, node string, change map[string]any) error {
	_, err := kube.MergePatch(ctx, r.Kubernetes.CoreV1().Nodes().Patch, node, map[string]any{"metadata": map[string]any{"labels": change}}, apply.FieldManager)
	if err = kube.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("the labels of node %s: %w", node, err)
	}
	return nil
}

// hasClient is what the agent of a node reports in one of the conditions of ClientLabels.
func hasClient(n *v1beta1.StorageNode, condition string) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(n.Status.Conditions, condition); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}
