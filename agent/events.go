package agent

import (
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func (a *Agent) eventf(about runtime.Object, kind, reason, format string, args ...any) {
	if a.Events != nil {
		a.Events.Eventf(about, kind, reason, format, args...)
	}
}

// tellTransition writes an event when a thing fails, is lost or comes back. That all went well needs none.
func (a *Agent) tellTransition(about runtime.Object, old, now v1.Phase, e *v1.Error, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1.ReadyCondition)
	switch {
	case old == now && now != v1.PhaseDeleting:
	case now == v1.PhaseLost && ready != nil:
		a.eventf(about, core.EventTypeWarning, "Lost", "%s", ready.Message)
	case now == v1.PhaseUnreachable && ready != nil:
		a.eventf(about, core.EventTypeWarning, string(now), "%s", ready.Message)
	case (old == v1.PhaseLost || old == v1.PhaseUnreachable) && now == v1.PhaseReady:
		a.eventf(about, core.EventTypeNormal, "Recovered", "it is on the disk of node %s again", a.Node)
	case old != now && e != nil:
		a.eventf(about, core.EventTypeWarning, string(e.Code), "%s", e.Message)
	}
}

// tellHealth writes an event when something is found wrong with a thing itself, and when it is well again. Of a pool that
// fails, which makes all that is in it unhealthy, the pool's node tells.
func (a *Agent) tellHealth(about runtime.Object, old, now []metav1.Condition) {
	was, is := meta.FindStatusCondition(old, v1.HealthyCondition), meta.FindStatusCondition(now, v1.HealthyCondition)
	ill := func(c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(v1.OwnFaults, c.Reason)
	}
	switch {
	case ill(is) && (!ill(was) || was.Reason != is.Reason):
		a.eventf(about, core.EventTypeWarning, is.Reason, "%s", is.Message)
	case ill(was) && is.Status == metav1.ConditionTrue:
		a.eventf(about, core.EventTypeNormal, "Repaired", "it is whole again on the disk of node %s", a.Node)
	}
}
