package volume

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// plight is what has become of a node whose agent is silent.
type plight struct {
	reason string // NodeDown or NodeGone
	cause  string
}

func (p plight) gone() bool { return p.reason == v1beta1.ReasonNodeGone }

// message is for what is kept.
func (p plight) message() string {
	if p.gone() {
		return p.cause + ". What it has comes back with it"
	}
	return p.cause
}

// marked says whether the condition already reports the plight; its message may be of an earlier moment.
func (p plight) marked(all []metav1.Condition) bool {
	c := meta.FindStatusCondition(all, v1beta1.ReadyCondition)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == p.reason
}

func (p plight) mark(all *[]metav1.Condition, generation int64) {
	meta.SetStatusCondition(all, metav1.Condition{
		Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: p.reason, Message: p.message(), ObservedGeneration: generation,
	})
}

// action is what is done about a Volume or a Snapshot whose node is silent.
type action int

const (
	leave    action = iota
	report          // it cannot be decoded
	handOver        // its pool is on another node now
	giveUp          // it is not to come back
	mark            // its status does not say yet that the node is silent
)

// planVolume decides about a Volume. home is the node that has its pool now, empty if none has. A volume with data is given
// up only where its class or a request says so, and only when the node is certainly gone.
func (p plight) planVolume(v *v1beta1.Volume, home string) action {
	made := v.Status.CreationTime != nil
	given := v.DeletionTimestamp != nil && (v.DeletionRequested() || !made) || made && v.Spec.NodeLossPolicy() == v1beta1.DeleteOnNodeLoss
	return p.plan(v, home, given, made, v.Status.Phase, v.Status.Conditions)
}

// planSnapshot decides about a Snapshot, which goes only when it is deleted.
func (p plight) planSnapshot(s *v1beta1.Snapshot, home string) action {
	made := s.Status.CreationTime != nil
	given := s.DeletionTimestamp != nil && (s.DeletionRequested() || !made)
	return p.plan(s, home, given, made, s.Status.Phase, s.Status.Conditions)
}

func (p plight) plan(o v1beta1.Object, home string, given, made bool, phase v1beta1.Phase, conditions []metav1.Condition) action {
	switch {
	case home != "":
		return handOver
	case o.Unreadable() != nil:
		return report
	case p.gone() && given:
		return giveUp
	case p.marked(conditions) && (!p.unreachable(made, phase) || phase == v1beta1.PhaseUnreachable):
		return leave
	}
	return mark
}

// unreachable says whether something that exists is out of reach because its node is gone.
func (p plight) unreachable(made bool, phase v1beta1.Phase) bool {
	return p.gone() && made && phase != v1beta1.PhaseLost
}

// markStored changes the status of a Volume or a Snapshot.
func (p plight) markStored(made bool, generation int64, phase *v1beta1.Phase, conditions *[]metav1.Condition) (unreachable bool) {
	p.mark(conditions, generation)
	if unreachable = p.unreachable(made, *phase); unreachable {
		*phase = v1beta1.PhaseUnreachable
	}
	return unreachable
}
