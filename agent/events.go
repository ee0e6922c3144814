package agent

import (
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// recordTransition writes an event when a volume or snapshot fails, is lost or comes back. Success needs none.
func (a *Agent) recordTransition(about runtime.Object, old, now v1beta1.Phase, e *v1beta1.Error, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1beta1.ReadyCondition)
	switch {
	case old == now && now != v1beta1.PhaseDeleting:
	case now == v1beta1.PhaseLost && ready != nil:
		a.Events.Eventf(about, core.EventTypeWarning, "Lost", "%s", ready.Message)
	case now == v1beta1.PhaseUnreachable && ready != nil:
		a.Events.Eventf(about, core.EventTypeWarning, string(now), "%s", ready.Message)
	case (old == v1beta1.PhaseLost || old == v1beta1.PhaseUnreachable) && now == v1beta1.PhaseReady:
		a.Events.Eventf(about, core.EventTypeNormal, "Recovered", "it is in the storage of %s again", v1beta1.SiteOf(a.Node))
	case old != now && e != nil:
		a.Events.Eventf(about, core.EventTypeWarning, string(e.Code), "%s", e.Message)
	}
}

// recordHealth writes an event when an object becomes unhealthy for a reason of its own, and when it is healthy again. A
// failing pool, which makes all its volumes unhealthy, is reported by the pool's node.
func (a *Agent) recordHealth(about runtime.Object, old, now []metav1.Condition) {
	was, is := meta.FindStatusCondition(old, v1beta1.HealthyCondition), meta.FindStatusCondition(now, v1beta1.HealthyCondition)
	ill := func(c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(v1beta1.OwnFaults, c.Reason)
	}
	switch {
	case ill(is) && (!ill(was) || was.Reason != is.Reason):
		a.Events.Eventf(about, core.EventTypeWarning, is.Reason, "%s", is.Message)
	case ill(was) && is.Status == metav1.ConditionTrue:
		a.Events.Eventf(about, core.EventTypeNormal, "Repaired", "it is healthy again in the storage of %s", v1beta1.SiteOf(a.Node))
	}
}
