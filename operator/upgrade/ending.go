package upgrade

import (
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// recheck is how often applications and the pods of NFS servers are polled. They are not watched here, since there are
// many of them and few upgrades.
const recheck = time.Second

func (r *round) soon() { r.again = kube.Sooner(r.again, recheck) }

// fail ends the current step as failed. Changes are reverted in step RollBack.
func (r *round) fail(why string) {
	if r.status.Step == v1beta1.StepRollBack {
		r.giveUp(why)
		return
	}
	now := timeOf(r.now)
	step := r.step()
	step.Message, step.EndTime = why, &now
	r.apply, r.roll, r.stop, r.start, r.bringJobs = nil, false, nil, nil, false
	failed := fmt.Sprintf("step %s: %s", r.status.Step, why)
	if r.pause = false; !r.hasChanged() {
		r.unpause = r.pausedByThis()
		r.finish(v1beta1.UpgradeFailed, failed)
		return
	}
	r.status.Phase, r.status.UpgradedNodes = v1beta1.UpgradeRollingBack, 0 // of those that run the old image again
	r.enter(v1beta1.StepRollBack, failed)
	r.condition(v1beta1.FailedCondition, metav1.ConditionTrue, ReasonFailed, failed)
}

// hasChanged says whether a step has started that changes what runs.
func (r *round) hasChanged() bool {
	return slices.ContainsFunc(r.status.Steps, func(s v1beta1.UpgradeStepStatus) bool { return s.Name == v1beta1.StepUpgradeInit })
}

// rollBack restores the old images, starts applications, and unpauses the StorageCluster.
func (r *round) rollBack() {
	there := r.cluster != nil && r.cluster.DeletionTimestamp == nil
	r.pause = there && !r.pausedByThis()
	if there && r.undoes() {
		r.apply = &images{nodes: r.status.From, controller: r.status.From}
		r.bringNFS = r.status.From
		if !r.controllerRuns(r.status.From) || !r.rolled(r.status.From) {
			return
		}
	}
	r.release(there, "")
}

// giveUp leaves the rest to the StorageCluster's controller, which applies the old image too.
func (r *round) giveUp(why string) {
	r.release(r.cluster != nil && r.cluster.DeletionTimestamp == nil, why)
}

// release starts the applications, unpauses, and ends the upgrade.
func (r *round) release(there bool, trouble string) {
	r.apply, r.roll, r.pause = nil, false, false
	if trouble != "" {
		r.bringNFS = "" // which may be what does not end
	}
	if r.starts() {
		return
	}
	r.unpause = r.pausedByThis()
	switch {
	case there && !r.undoes():
		r.setImage = r.status.To
	case there && trouble != "": // whichever release the controller is of
		r.setImage = r.status.From
	}
	r.finish(v1beta1.UpgradeFailed, r.outcome(there, trouble))
}

// outcome says which step failed, why, and how the rollback ended.
func (r *round) outcome(there bool, trouble string) string {
	why := "it failed"
	if n := len(r.status.Steps); n > 1 {
		why = fmt.Sprintf("step %s: %s", r.status.Steps[n-2].Name, r.status.Steps[n-2].Message)
	}
	switch {
	case !there:
		return why
	case trouble != "":
		return fmt.Sprintf("%s; the controller rolls back to %s itself, since %s", why, r.status.From, trouble)
	case !r.undoes():
		return fmt.Sprintf("%s; rollback is false, so the StorageCluster now names %s", why, r.status.To)
	}
	return fmt.Sprintf("%s; %s runs again", why, r.status.From)
}

// finish ends the upgrade.
func (r *round) finish(phase v1beta1.UpgradePhase, message string) {
	now := timeOf(r.now)
	r.status.Phase, r.status.Node, r.status.NodeStartTime, r.again = phase, "", nil, 0
	if len(r.status.Steps) > 0 && (r.step().EndTime == nil || r.status.Step == v1beta1.StepRollBack) {
		r.step().EndTime, r.step().Message = &now, message
	}
	if phase == v1beta1.UpgradeCompleted {
		r.status.Completed = true
		if r.status.Step == "" {
			r.status.Step = v1beta1.StepUpgradeComplete
			r.status.Steps = []v1beta1.UpgradeStepStatus{{Name: v1beta1.StepUpgradeComplete, StartTime: now, EndTime: &now, Message: message}}
		}
		r.condition(v1beta1.CompleteCondition, metav1.ConditionTrue, ReasonCompleted, message)
		r.events = append(r.events, event{core.EventTypeNormal, string(v1beta1.StepUpgradeComplete), message})
		return
	}
	r.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, ReasonFailed, message)
	r.condition(v1beta1.FailedCondition, metav1.ConditionTrue, ReasonFailed, message)
	r.events = append(r.events, event{core.EventTypeWarning, ReasonFailed, message})
}
