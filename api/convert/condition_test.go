package convert

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestCondition_KeepsOnlyTheReasonsOfBackends(t *testing.T) {
	for reason, want := range map[string]backend.HealthReason{
		v1beta1.ReasonDevice: backend.DeviceErrors, v1beta1.ReasonFileSystem: backend.FileSystemErrors, v1beta1.ReasonNotGrown: backend.NotGrown, v1beta1.ReasonPoolErrors: backend.PoolErrors,
		v1beta1.ReasonDamaged: backend.Damaged, v1beta1.ReasonNodeDown: backend.Damaged,
	} {
		c := metav1.Condition{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "why"}
		if got := ToCondition([]metav1.Condition{c}); got != (backend.Condition{Abnormal: true, Reason: want, Message: "why"}) {
			t.Errorf("%s became %+v", reason, got)
		}
	}
}

func TestCondition_ThatIsNotFalseIsHealthy(t *testing.T) {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown} {
		all := []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: status, Message: "why"}, {Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse}}
		if got := ToCondition(all); got != (backend.Condition{}) {
			t.Errorf("%s became %+v", status, got)
		}
	}
	if got := ToCondition(nil); got != (backend.Condition{}) {
		t.Errorf("nothing became %+v", got)
	}
}
