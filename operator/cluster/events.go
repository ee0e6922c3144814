package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// write writes the status if it differs, and an event about each transition. It logs the events too, since the API server
// drops them after an hour.
func (r *Controller) write(ctx context.Context, c *v1beta1.StorageCluster, next v1beta1.StorageClusterStatus) error {
	written, changed, err := r.written.WriteStatus(ctx, c, next)
	if err != nil || !changed {
		return err
	}
	for _, e := range transitions(&c.Status, &next) {
		r.Events.Event(written, e.kind, e.reason, kube.Shorten(e.message, kube.LongestEvent))
		r.Log.Log(ctx, e.level(), "recorded as an event", "cluster", c.Name, "reason", e.reason, "message", e.message)
	}
	return nil
}

type event struct{ kind, reason, message string }

func (e event) level() slog.Level {
	if e.kind == core.EventTypeWarning {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// transitions are the events between two states.
func transitions(old, next *v1beta1.StorageClusterStatus) (all []event) {
	progressing := meta.FindStatusCondition(next.Conditions, v1beta1.ProgressingCondition)
	refusals := []string{reasonInvalid, reasonNotApplied, reasonForeign, reasonStuck, reasonRefused}
	switch {
	case slices.Contains(refusals, progressing.Reason) && (hadAnotherReason(old, progressing) || isNews(progressing, old)):
		all = append(all, event{core.EventTypeWarning, "FailedCreation", progressing.Message})
	case progressing.Reason == reasonHidden && hadAnotherReason(old, progressing):
		all = append(all, event{core.EventTypeWarning, reasonHidden, progressing.Message})
	case progressing.Reason == reasonVolumesExist && hadAnotherReason(old, progressing):
		all = append(all, event{core.EventTypeWarning, "Terminating", "not deleted yet: " + progressing.Message})
	case progressing.Reason == reasonTerminating && hadAnotherReason(old, progressing):
		all = append(all, event{core.EventTypeNormal, "Terminating", "removing its objects"})
	}
	if c := meta.FindStatusCondition(next.Conditions, v1beta1.ReleaseIgnoredCondition); c != nil && isNews(c, old) {
		all = append(all, event{core.EventTypeWarning, v1beta1.ReleaseIgnoredCondition, c.Message})
	}
	all = append(all, inlineEvent(old, next)...)
	if d := meta.FindStatusCondition(next.Conditions, v1beta1.DegradedCondition); d.Reason == reasonUnreachable && old.Phase == next.Phase && hadAnotherReason(old, d) {
		all = append(all, event{core.EventTypeWarning, reasonUnreachable, d.Message})
	}
	stable := next.Phase == v1beta1.ClusterRunning || next.Phase == v1beta1.ClusterDegraded
	if old.Phase != next.Phase && next.Phase != v1beta1.ClusterTerminating || stable && (old.ReadyNodes != next.ReadyNodes || old.DesiredNodes != next.DesiredNodes) {
		all = append(all, changedStatus(next))
	}
	return all
}

// hadAnotherReason says whether the reason of a condition has changed.
func hadAnotherReason(old *v1beta1.StorageClusterStatus, c *metav1.Condition) bool {
	was := meta.FindStatusCondition(old.Conditions, c.Type)
	return was == nil || was.Reason != c.Reason
}

// isNews says whether a condition has changed enough for an event.
func isNews(c *metav1.Condition, old *v1beta1.StorageClusterStatus) bool {
	was := meta.FindStatusCondition(old.Conditions, c.Type)
	return was == nil || was.Message != c.Message
}

func changedStatus(next *v1beta1.StorageClusterStatus) event {
	e := event{core.EventTypeNormal, "ChangedStatus", fmt.Sprintf("%s: %d/%d nodes are ready", next.Phase, next.ReadyNodes, next.DesiredNodes)}
	if next.Phase != v1beta1.ClusterDegraded && next.Phase != v1beta1.ClusterPending {
		return e
	}
	e.kind = core.EventTypeWarning
	for _, kind := range []string{v1beta1.DegradedCondition, v1beta1.AvailableCondition} {
		if c := meta.FindStatusCondition(next.Conditions, kind); c != nil && c.Message != "" {
			e.message += ". " + c.Message
			break
		}
	}
	return e
}
