package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// recordVolume writes the state of a volume into its object, if it has changed.
func (a *Agent) recordVolume(ctx context.Context, o *v1beta1.Volume, v *backend.Volume, attached *v1beta1.VolumeAttached, failure error) error {
	status := volumeStatus(o, v, failure, a.Address)
	status.Attached = attached
	if !newsOfVolume(&o.Status, status, smallChange) {
		return nil
	}
	a.recordTransition(o, o.Status.Phase, status.Phase, status.Error, status.Conditions)
	a.recordHealth(o, o.Status.Conditions, status.Conditions)
	_, _, err := a.volumes.WriteStatus(ctx, o, *status)
	return err
}

// volumeStatus returns the status for the volume v, which is nil if there is none.
func volumeStatus(o *v1beta1.Volume, v *backend.Volume, failure error, address string) *v1beta1.VolumeStatus {
	s := o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	r := report{exists: v != nil, populating: o.IsBeingPopulated(), deleting: o.DeletionTimestamp != nil, failure: failure, node: o.Spec.Node}
	if v != nil {
		convert.ShowVolume(s, v, address)
		r.condition, r.usable = v.Condition, v.Access != (backend.Access{}) || !v.Condition.Abnormal
		r.incomplete = v.Incomplete && o.Spec.PopulatedBy == ""
	}
	s.Attached = o.SeenAttached()
	s.Phase, s.Error = r.phase(), r.errorOf()
	r.conditions(&s.Conditions, o.Generation)
	switch {
	case v != nil && !v.Incomplete && r.populating:
		c := metav1.Condition{
			Type: v1beta1.CompleteCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPutBack, Message: putBack, ObservedGeneration: o.Generation,
		}
		if o.IsCopied() {
			c.Reason, c.Message = v1beta1.ReasonCopyVerified, "its pool has recorded that it has all of its content"
		}
		meta.SetStatusCondition(&s.Conditions, c)
	case r.incomplete: // Ready says so as well, but not while the volume is out of reach
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonIncomplete, Message: incomplete, ObservedGeneration: o.Generation,
		})
	case v != nil && v.Size > 0: // of a damaged volume it is not known
		meta.RemoveStatusCondition(&s.Conditions, v1beta1.CompleteCondition)
	}
	s.SetColumns()
	return s
}

// newsOfVolume says whether a status must be written. A change of the usage below a percentage of the size is not worth a write.
func newsOfVolume(old, now *v1beta1.VolumeStatus, percent int64) bool {
	if noticeable(v1beta1.Bytes(old.Used), v1beta1.Bytes(now.Used), v1beta1.Bytes(now.Size), percent) {
		return true
	}
	same := now.DeepCopy()
	same.Used, same.Columns.Used = old.Used, old.Columns.Used
	return !equality.Semantic.DeepEqual(old, same)
}

// Percentages of the size by which the usage changes: a large change is written by the next survey, a small one by every tenth.
const (
	largeChange = 10
	smallChange = 2
)

// noticeable says whether usage has changed by a percentage of the size, and by 1 MiB.
func noticeable(old, now, size, percent int64) bool {
	change := max(old-now, now-old)
	return change >= max(1<<20, size/100*percent)
}

const incomplete = "it has only a part of its content: its Volume was deleted while a pod copied the rest; delete it, and the claim is copied again"

const putBack = "its pool has all of its content, and its object says that a pod has still to bring that, as after etcd was put back: nothing is copied into it"

// report is the state of a volume or a snapshot to write.
type report struct {
	exists     bool
	populating bool // a pod still has to bring its content
	incomplete bool // it lacks content that nothing brings any more
	usable     bool
	deleting   bool
	condition  backend.Condition
	failure    error
	node       string
}

func (r report) phase() v1beta1.Phase {
	switch {
	case r.deleting:
		return v1beta1.PhaseDeleting
	case r.exists && r.populating:
		return v1beta1.PhasePending
	case r.exists && r.incomplete:
		return v1beta1.PhaseFailed
	case r.exists:
		return v1beta1.PhaseReady
	case errors.Is(r.failure, errPoolOut):
		return v1beta1.PhaseUnreachable
	case errors.Is(r.failure, errMissing):
		return v1beta1.PhaseLost
	case r.failure != nil && backend.CodeOf(r.failure).Permanent():
		return v1beta1.PhaseFailed
	}
	return v1beta1.PhasePending
}

func (r report) errorOf() *v1beta1.Error {
	if errors.Is(r.failure, errMissing) || errors.Is(r.failure, errWaits) {
		return nil
	}
	return convert.FromError(r.failure)
}

func (r report) conditions(all *[]metav1.Condition, generation int64) {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		const most = 32 << 10
		meta.SetStatusCondition(all, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message[:min(len(message), most)], ObservedGeneration: generation,
		})
	}
	healthy := convert.FromCondition(r.condition)
	missingHere := fmt.Sprintf("its pool, of %s, is complete and does not have it; restore it there from trash or backup, or delete it", v1beta1.SiteOf(r.node))
	switch e := r.errorOf(); {
	case errors.Is(r.failure, errWaits):
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonDeleting, r.failure.Error())
		return
	case r.deleting && e != nil:
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, string(e.Code), e.Message)
		return
	case errors.Is(r.failure, errMissing):
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonMissing, missingHere)
		set(v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonMissing, missingHere)
		return
	case errors.Is(r.failure, errPoolOut):
		reason := convert.FromPoolError(r.failure)
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, reason, e.Message)
		set(v1beta1.HealthyCondition, metav1.ConditionFalse, reason, e.Message)
		return
	case !r.exists && e != nil:
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, string(e.Code), e.Message)
		return
	case !r.usable:
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, healthy.Reason, healthy.Message)
	case r.populating:
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonPopulating, "a pod copies its content, see status.copy")
	case r.incomplete:
		set(v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonIncomplete, incomplete)
	default:
		set(v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	}
	set(healthy.Type, healthy.Status, healthy.Reason, healthy.Message)
}
