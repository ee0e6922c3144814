package facts

import (
	"strings"
	"testing"
	"time"

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

func TestFence_IsJudgedByItsReason(t *testing.T) {
	const client = "client.4711"
	requested := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for reason, test := range map[string]struct {
		status metav1.ConditionStatus
		level  Level
		says   string
	}{
		v1beta1.ReasonFencing:       {metav1.ConditionFalse, Problem, "being shut out"},
		v1beta1.ReasonNotFenced:     {metav1.ConditionFalse, Problem, "cannot be shut out"},
		v1beta1.ReasonTooManySilent: {metav1.ConditionFalse, Problem, "cannot be shut out"},
		v1beta1.ReasonFenced:        {metav1.ConditionTrue, Warning, "is shut out"},
		v1beta1.ReasonReleasing:     {metav1.ConditionTrue, Warning, "is back"},
		v1beta1.ReasonReleased:      {metav1.ConditionFalse, Fine, ""},
		v1beta1.ReasonWithdrawn:     {metav1.ConditionFalse, Fine, ""},
	} {
		n := &v1beta1.StorageNode{Status: v1beta1.StorageNodeStatus{
			Conditions:  []metav1.Condition{{Type: v1beta1.FencedCondition, Status: test.status, Reason: reason, Message: "as it says", LastTransitionTime: metav1.NewTime(requested.Add(-time.Hour))}},
			CephClients: []v1beta1.CephClient{{FSID: "f", ID: client}},
		}}
		if reason != v1beta1.ReasonTooManySilent {
			n.Spec.Fence = &v1beta1.Fence{RequestedAt: metav1.NewMicroTime(requested)}
		}
		got := OfFence(n)
		if test.level == Fine {
			if got != nil {
				t.Errorf("%s: %+v", reason, got)
			}
			continue
		}
		since := map[bool]string{true: "2026-05-04T03:02:01Z", false: "2026-05-04T02:02:01Z"}[n.Spec.Fence != nil]
		if got == nil || got.Level != test.level || got.Reason != reason {
			t.Errorf("%s: %+v", reason, got)
			continue
		}
		for _, part := range []string{test.says, "as it says", since, client + " of cluster f"} {
			if !strings.Contains(got.What, part) {
				t.Errorf("%s: %q does not say %q", reason, got.What, part)
			}
		}
	}
	if got := OfFence(&v1beta1.StorageNode{}); got != nil {
		t.Errorf("a node that was never lost: %+v", got)
	}
	many := &v1beta1.StorageNode{Status: v1beta1.StorageNodeStatus{CephClients: make([]v1beta1.CephClient, mostClients+3)}}
	if got := clientsOf(many); !strings.HasSuffix(got, ", 3 more") {
		t.Errorf("many clients are %q", got)
	}
}
