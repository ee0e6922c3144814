package admin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestCondition_SaysHowFarAPodHasCopied(t *testing.T) {
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{PopulatedBy: v1beta1.PopulatedByPod}}
	v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonPopulating, Message: "a pod copies it"}}
	for want, c := range map[string]*v1beta1.VolumeCopy{
		"Populating: a pod copies it":               nil,
		"Populating: Copying 25%":                   {Phase: v1beta1.CopyCopying, BytesDone: 1, BytesTotal: 4},
		"Populating: Verifying 50%: node n is down": {Phase: v1beta1.CopyVerifying, BytesDone: 2, BytesTotal: 4, Message: "node n is down"},
		"Populating: Pending: 4 are copied":         {Phase: v1beta1.CopyPending, Message: "4 are copied"},
	} {
		v.Status.Copy = c
		if got := recordOf(v).condition(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
