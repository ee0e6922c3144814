package nfsserver

import (
	"context"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
)

// write writes the status where it differs, and an event for each transition that it shows.
func (r *Controller) write(ctx context.Context, s *v1.NFSServer, next v1.NFSServerStatus) error {
	written, changed, err := r.written.WriteStatus(ctx, s, next)
	if err != nil || !changed {
		return err
	}
	for _, e := range transitions(&s.Status, &next) {
		r.Events.Event(written, e.kind, e.reason, kube.Shorten(e.message, kube.LongestEvent))
	}
	return nil
}

type event struct{ kind, reason, message string }

// faults are the reasons for which somebody has to do something.
var faults = map[string]bool{
	reasonInvalid: true, reasonNotApplied: true, reasonForeign: true, reasonClaim: true, reasonPodSecurity: true,
	reasonNotAllowed: true,
}

// transitions are the events between two states.
func transitions(old, next *v1.NFSServerStatus) (all []event) {
	was := func(kind string) metav1.Condition { return find(old, kind) }
	is := func(kind string) metav1.Condition { return find(next, kind) }
	progressing, available, degraded := is(v1.ProgressingCondition), is(v1.AvailableCondition), is(v1.DegradedCondition)
	switch {
	case progressing.Reason == reasonInUse && was(v1.ProgressingCondition).Reason != reasonInUse:
		all = append(all, event{core.EventTypeWarning, "Terminating", "not deleted yet: " + progressing.Message})
	case progressing.Reason == reasonTerminating && was(v1.ProgressingCondition).Reason != reasonTerminating:
		all = append(all, event{core.EventTypeNormal, "Terminating", "removing all that belongs to it"})
	}
	for _, c := range []metav1.Condition{available, degraded} {
		before := was(c.Type)
		if faults[c.Reason] && (before.Reason != c.Reason || before.Message != c.Message) {
			reason := "FailedCreation"
			if c.Reason == reasonNotAllowed { // it may serve nevertheless
				reason = reasonNotAllowed
			}
			return append(all, event{core.EventTypeWarning, reason, c.Message})
		}
	}
	switch before := was(v1.AvailableCondition); {
	case available.Status == metav1.ConditionTrue && before.Status != metav1.ConditionTrue:
		all = append(all, event{core.EventTypeNormal, "ChangedStatus", "the NFS server works: " + available.Message})
	case available.Reason == reasonNotServing && before.Status == metav1.ConditionTrue:
		all = append(all, event{core.EventTypeWarning, "ChangedStatus", "the NFS server does not serve: " + available.Message})
	}
	return all
}

func find(s *v1.NFSServerStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
