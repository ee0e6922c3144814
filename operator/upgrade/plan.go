package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

const defaultNodeTimeout = 10 * time.Minute

// The reasons of conditions and of events, beside the names of steps.
const (
	ReasonWaiting   = "Waiting"
	ReasonRunning   = "Running"
	ReasonCompleted = "UpgradeComplete"
	ReasonFailed    = "UpgradeFailed"
)

// images are those that the workloads should run.
type images struct{ nodes, controller v1beta1.Image }

// event is written once.
type event struct{ kind, reason, message string }

// plan is what to do now, in this order, and the status after that.
type plan struct {
	finalizer *bool // whether to set or remove it; nil: neither
	bringJobs bool
	pause     bool
	apply     *images
	roll      bool          // replace the next outdated node pod
	bringNFS  v1beta1.Image // of the servers; empty: none
	stop      []application
	start     []application
	// unpause ends the pause of this upgrade; setImage, if not empty, is written into the spec with it.
	unpause  bool
	setImage v1beta1.Image
	events   []event

	status v1beta1.StorageUpgradeStatus
	again  time.Duration // when to look again, if nothing happens before
}

// round is one pass over one upgrade.
type round struct {
	*plan
	observed

	upgrade *v1beta1.StorageUpgrade
}

// newPlan decides. A step ends only when its result is observed, so a controller may be killed at any point.
func newPlan(u *v1beta1.StorageUpgrade, o observed) plan {
	p := plan{status: *u.Status.DeepCopy()}
	p.status.ObservedGeneration = u.Generation
	r := round{plan: &p, observed: o, upgrade: u}
	switch phase := u.Status.Phase; {
	case hasEnded(u), u.DeletionTimestamp != nil && !hasBegun(u):
		r.keepFinalizer(false)
	case !slices.Contains(u.Finalizers, v1beta1.OperatorFinalizer):
		r.keepFinalizer(true)
	case !hasBegun(u):
		r.begin()
	case phase == v1beta1.UpgradeRollingBack:
		r.rollBack()
	case u.DeletionTimestamp != nil && u.Status.Step != v1beta1.StepUpgradeComplete:
		r.fail("it was deleted")
	case o.cluster == nil:
		r.fail("the StorageCluster is gone")
	case o.cluster.DeletionTimestamp != nil:
		r.fail(fmt.Sprintf("StorageCluster %s is being deleted", o.cluster.Name))
	case o.cluster.Unreadable() != nil:
		r.stay(fmt.Sprintf("StorageCluster %s to be corrected, which cannot be read: %s", o.cluster.Name, o.cluster.Unreadable()))
	default:
		r.goOn()
	}
	p.bound()
	return p
}

// bound shortens messages of others, such as a registry, to the limit of an event.
func (p *plan) bound() {
	for i := range p.status.Steps {
		p.status.Steps[i].Message = kube.Shorten(p.status.Steps[i].Message, kube.LongestEvent)
	}
	for i := range p.status.Conditions {
		p.status.Conditions[i].Message = kube.Shorten(p.status.Conditions[i].Message, kube.LongestEvent)
	}
	for i := range p.events {
		p.events[i].message = kube.Shorten(p.events[i].message, kube.LongestEvent)
	}
}

func hasEnded(u *v1beta1.StorageUpgrade) bool {
	return u.Status.Phase == v1beta1.UpgradeCompleted || u.Status.Phase == v1beta1.UpgradeFailed
}

func hasBegun(u *v1beta1.StorageUpgrade) bool {
	return u.Status.Phase != "" && u.Status.Phase != v1beta1.UpgradeWaiting
}

func (r *round) keepFinalizer(keep bool) {
	if slices.Contains(r.upgrade.Finalizers, v1beta1.OperatorFinalizer) != keep {
		r.finalizer = &keep
	}
}

// begin waits until the upgrade may start, and decides which image to run.
func (r *round) begin() {
	if why := r.turn(); why != "" {
		r.status.Phase = v1beta1.UpgradeWaiting
		r.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, ReasonWaiting, why)
		return
	}
	to, err := target(&r.upgrade.Spec, r.current)
	if _, wrong := r.upgrade.Spec.NodeTimeout.Or(0); err == nil && wrong != nil {
		err = fmt.Errorf("spec.nodeTimeout: %w", wrong)
	}
	r.status.From, r.status.To = r.current, to
	switch {
	case err != nil:
		r.finish(v1beta1.UpgradeFailed, err.Error())
	case to == r.current && r.lags() != "":
		r.finish(v1beta1.UpgradeFailed, fmt.Sprintf("StorageCluster %s names %s already, and its own rollout has not ended: it waits for %s", r.cluster.Name, to, r.lags()))
	case to == r.current:
		r.finish(v1beta1.UpgradeCompleted, fmt.Sprintf("%s runs already", to))
	default:
		r.status.Phase = v1beta1.UpgradeRunning
		r.enter(v1beta1.StepPullImage, fmt.Sprintf("pulling %s to all nodes", to))
	}
}

// lags says what does not run the image that the StorageCluster names; "" if everything does.
func (r *round) lags() string {
	switch {
	case !r.nodes.none && r.nodes.image != r.current:
		return fmt.Sprintf("the DaemonSet to name %s", r.current)
	case !r.nodes.none && !r.nodes.rollout.Done:
		return r.nodes.rollout.Waiting
	case !r.nodes.none && len(r.nodes.unready) > 0:
		return listed(r.nodes.unready)
	case r.controller.Image != r.current:
		return fmt.Sprintf("the controller to be asked to run %s", r.current)
	case !r.controller.Ready:
		return r.controller.Waiting
	}
	return ""
}

// turn says what the upgrade waits for before it may start; "" if it may.
func (r *round) turn() string {
	switch c := r.cluster; {
	case r.other != "":
		return fmt.Sprintf("upgrade %s runs first", r.other)
	case c == nil:
		return "there is no StorageCluster to upgrade"
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("StorageCluster %s is being deleted", c.Name)
	case c.Unreadable() != nil:
		return fmt.Sprintf("StorageCluster %s cannot be read: %s", c.Name, c.Unreadable())
	case c.Spec.Paused && c.Annotations[v1beta1.PausedByAnnotation] != "":
		return fmt.Sprintf("StorageCluster %s is paused by upgrade %s", c.Name, c.Annotations[v1beta1.PausedByAnnotation])
	case c.Spec.Paused:
		return fmt.Sprintf("StorageCluster %s is paused: remove spec.paused to start", c.Name)
	}
	return ""
}

func (r *round) timeout() time.Duration {
	if t, err := r.upgrade.Spec.NodeTimeout.Or(0); err == nil && t > 0 {
		return t
	}
	return defaultNodeTimeout
}

func (r *round) offline() bool { return r.upgrade.Spec.Strategy == v1beta1.OfflineUpgrade }

// undoes says whether changes are rolled back when a step fails. Deleting the upgrade always rolls back.
func (r *round) undoes() bool {
	return ptr.Deref(r.upgrade.Spec.Rollback, true) || r.upgrade.DeletionTimestamp != nil
}

// step returns the current step.
func (r *round) step() *v1beta1.UpgradeStepStatus {
	if len(r.status.Steps) == 0 {
		return &v1beta1.UpgradeStepStatus{StartTime: timeOf(r.now)}
	}
	return &r.status.Steps[len(r.status.Steps)-1]
}

// enter ends the current step and starts the next.
func (r *round) enter(s v1beta1.UpgradeStep, message string) {
	now := timeOf(r.now)
	if len(r.status.Steps) > 0 && r.step().EndTime == nil {
		r.step().EndTime, r.step().Message = &now, r.did()
	}
	r.status.Step, r.status.Node, r.status.NodeStartTime = s, "", nil
	r.apply = nil // what this step is for has been seen; a failure to apply it again would hide that it has ended
	r.status.Steps = append(r.status.Steps, v1beta1.UpgradeStepStatus{Name: s, StartTime: now, Message: message})
	kind := core.EventTypeNormal
	if s == v1beta1.StepRollBack {
		kind = core.EventTypeWarning
	}
	if s != v1beta1.StepUpgradeComplete { // which is reported once it is true
		r.events = append(r.events, event{kind, string(s), message})
	}
	r.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, ReasonRunning, message)
	r.again = time.Second // the change of the status queues it earlier
}

// wait stays in the step until something changes, or its time is over.
func (r *round) wait(since metav1.Time, what string) {
	left := since.Add(r.timeout()).Sub(r.now)
	if left <= 0 {
		r.fail(fmt.Sprintf("not done after %s: waiting for %s", r.timeout(), cmp.Or(r.trouble, what)))
		return
	}
	r.stay(what)
	r.again = left
}

// stay is wait without a timeout.
func (r *round) stay(what string) {
	if r.trouble != "" {
		what = r.trouble
	}
	r.step().Message = what
	r.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, ReasonRunning, fmt.Sprintf("step %s: waiting for %s", r.status.Step, what))
}

func (r *round) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	kube.SetRunCondition(&r.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: r.status.ObservedGeneration, LastTransitionTime: timeOf(r.now),
	})
}

func timeOf(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
