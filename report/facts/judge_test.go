package facts

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func volume(name string, phase v1beta1.Phase, conditions ...metav1.Condition) *v1beta1.Volume {
	return &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}, Spec: v1beta1.VolumeSpec{ClaimRef: v1beta1.ReferenceTo("shop/" + name), Node: "a", Pool: "default"},
		Status: v1beta1.VolumeStatus{Phase: phase, Conditions: conditions},
	}
}

func TestAVolumeIsUnwellWhenItIsNotWhatItShouldBe(t *testing.T) {
	now := time.Now()
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: "as it says"}
	}
	aged := func(v *v1beta1.Volume, created, deleted time.Duration) *v1beta1.Volume {
		v.CreationTimestamp = metav1.NewTime(now.Add(-created))
		if deleted > 0 {
			at := metav1.NewTime(now.Add(-deleted))
			v.DeletionTimestamp = &at
		}
		return v
	}
	failed := volume("v", v1beta1.PhaseFailed)
	failed.Status.Error = &v1beta1.Error{Message: "no room"}
	for name, test := range map[string]struct {
		volume *v1beta1.Volume
		want   string // in the message; none if it is well
	}{
		"ready":               {volume("v", v1beta1.PhaseReady, condition(v1beta1.ReadyCondition, metav1.ConditionTrue)), ""},
		"being made":          {volume("v", v1beta1.PhasePending, condition(v1beta1.ReadyCondition, metav1.ConditionFalse)), ""},
		"just requested":      {volume("v", ""), ""},
		"made for too long":   {aged(volume("v", v1beta1.PhasePending), time.Hour, 0), "being made since"},
		"not made for long":   {aged(volume("v", ""), time.Hour, 0), "agent of its node"},
		"being removed":       {aged(volume("v", v1beta1.PhaseDeleting), time.Hour, time.Second), ""},
		"removed for long":    {aged(volume("v", v1beta1.PhaseDeleting), time.Hour, 30*time.Minute), "being removed since"},
		"failed":              {failed, "no room"},
		"out of reach":        {volume("v", v1beta1.PhaseUnreachable, condition(v1beta1.ReadyCondition, metav1.ConditionFalse)), "as it says"},
		"lost":                {volume("v", v1beta1.PhaseLost, condition(v1beta1.ReadyCondition, metav1.ConditionFalse)), "as it says"},
		"damaged":             {volume("v", v1beta1.PhaseReady, condition(v1beta1.HealthyCondition, metav1.ConditionFalse)), "as it says"},
		"its node is silent":  {volume("v", v1beta1.PhaseReady, condition(v1beta1.ReadyCondition, metav1.ConditionUnknown)), "as it says"},
		"damaged while going": {aged(volume("v", v1beta1.PhaseDeleting, condition(v1beta1.HealthyCondition, metav1.ConditionFalse)), time.Hour, time.Second), "as it says"},
	} {
		var u *Unwell
		if all := (&Facts{Volumes: []*v1beta1.Volume{test.volume}, Now: now}).Unwell(); len(all) > 0 {
			u = &all[0]
		}
		switch {
		case test.want == "" && u != nil:
			t.Errorf("%s: %+v", name, u)
		case test.want != "" && (u == nil || !strings.Contains(u.Message, test.want) || u.ClaimRef.String() != "shop/v" || u.Pool != "default"):
			t.Errorf("%s: %+v", name, u)
		}
	}
}

func TestTheTimeOfAnEventIsItsLast(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	later := metav1.NewMicroTime(time.Unix(2000, 0))
	for name, test := range map[string]struct {
		event core.Event
		want  int64
	}{
		"counted":     {core.Event{LastTimestamp: at}, 1000},
		"once":        {core.Event{EventTime: later}, 2000},
		"in a series": {core.Event{EventTime: metav1.NewMicroTime(at.Time), Series: &core.EventSeries{LastObservedTime: later}}, 2000},
		"first only":  {core.Event{FirstTimestamp: at}, 1000},
		"made only":   {core.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}}, 1000},
	} {
		if got := When(&test.event).Unix(); got != test.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
