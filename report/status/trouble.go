package status

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// slow is how long something may take to be made or removed before it counts as not well.
const slow = 5 * time.Minute

// VolumeTrouble is nil if a volume is well.
func VolumeTrouble(v *v1.Volume, now time.Time) *Unwell {
	message, bad := unread(v)
	if !bad {
		message, bad = trouble(&v.ObjectMeta, v.Status.Phase, v.Status.Conditions, v.Status.Error, now)
	}
	if !bad {
		return nil
	}
	return &Unwell{"Volume", v.Name, v.Spec.Claim, v.Spec.Node, v.PoolName(), cmp.Or(v.Status.Phase, v1.PhasePending), message}
}

// SnapshotTrouble is nil if a snapshot is well.
func SnapshotTrouble(s *v1.Snapshot, now time.Time) *Unwell {
	message, bad := unread(s)
	if !bad {
		message, bad = trouble(&s.ObjectMeta, s.Status.Phase, s.Status.Conditions, s.Status.Error, now)
	}
	if !bad {
		return nil
	}
	return &Unwell{"Snapshot", s.Name, "", s.Spec.Node, s.Status.Pool, cmp.Or(s.Status.Phase, v1.PhasePending), message}
}

// unread says of an object that it cannot be decoded, if that is so.
func unread(o v1.Object) (message string, bad bool) {
	if err := o.Unreadable(); err != nil {
		return "its object cannot be read: " + err.Error(), true
	}
	return "", false
}

func trouble(o *metav1.ObjectMeta, phase v1.Phase, conditions []metav1.Condition, failed *v1.Error, now time.Time) (message string, bad bool) {
	if failed != nil {
		message = failed.Message
	}
	for _, kind := range []string{v1.HealthyCondition, v1.ReadyCondition} {
		c := meta.FindStatusCondition(conditions, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			message = cmp.Or(message, c.Message)
			// While something is made or removed it is not ready, as it should be.
			bad = bad || kind == v1.HealthyCondition && c.Status == metav1.ConditionFalse || phase == v1.PhaseReady
		}
	}
	switch {
	case phase == v1.PhaseFailed, phase == v1.PhaseUnreachable, phase == v1.PhaseLost:
		bad = true
	case o.DeletionTimestamp != nil && now.Sub(o.DeletionTimestamp.Time) > slow:
		return cmp.Or(message, fmt.Sprintf("it is being removed since %s", o.DeletionTimestamp.UTC().Format(time.RFC3339))), true
	case o.DeletionTimestamp == nil && (phase == "" || phase == v1.PhasePending) && now.Sub(o.CreationTimestamp.Time) > slow:
		return cmp.Or(message, fmt.Sprintf("it is being made since %s; look at the agent of its node", o.CreationTimestamp.UTC().Format(time.RFC3339))), true
	}
	return message, bad
}
