package agent

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// ability is a kind of volumes elsewhere that the host may lack something to use. It may get that at any time.
type ability struct {
	condition string // of the StorageNode
	check     func() (reason string, err error)
	last      atomic.Pointer[metav1.Condition] // nil until it was checked
}

func (a *Agent) checkAbility(b *ability) {
	now := &metav1.Condition{Type: b.condition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady}
	if reason, err := b.check(); err != nil {
		now.Status, now.Reason, now.Message = metav1.ConditionFalse, reason, err.Error()
	}
	last := b.last.Swap(now)
	if last != nil && *last == *now {
		return
	}
	a.log.Info("checked whether volumes can be used on this node", "condition", now.Type, "can", now.Status, "reason", now.Reason, "message", now.Message)
	a.node.change()
}

// addAbilities adds those that were checked, and removes what an earlier process checked and this one does not.
func (a *Agent) addAbilities(s *v1beta1.StorageNodeStatus) {
	checked := map[string]bool{}
	for _, b := range a.abilities {
		checked[b.condition] = true
		if c := b.last.Load(); c != nil {
			now := *c
			now.ObservedGeneration = s.ObservedGeneration
			meta.SetStatusCondition(&s.Conditions, now)
		}
	}
	for condition := range v1beta1.ClientLabels {
		if !checked[condition] {
			meta.RemoveStatusCondition(&s.Conditions, condition)
		}
	}
}
