package convert

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// FromCondition returns the condition Healthy.
func FromCondition(c backend.Condition) metav1.Condition {
	if !c.Abnormal {
		return metav1.Condition{Type: v1beta1.HealthyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonHealthy}
	}
	return metav1.Condition{
		Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: cmp.Or(string(c.Reason), v1beta1.ReasonDamaged), Message: c.Message,
	}
}

// ToCondition reads the condition Healthy. It drops a reason that no backend reports, such as that of a node.
func ToCondition(all []metav1.Condition) backend.Condition {
	c := meta.FindStatusCondition(all, v1beta1.HealthyCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return backend.Condition{}
	}
	found := backend.Condition{Abnormal: true, Message: c.Message}
	switch r := backend.HealthReason(c.Reason); r {
	case backend.DeviceErrors, backend.FileSystemErrors, backend.NotGrown, backend.PoolErrors:
		found.Reason = r
	}
	return found
}
