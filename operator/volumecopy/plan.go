package volumecopy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

const (
	// mostFailures is how many pods in a row may fail without any progress.
	mostFailures = 6
	// firstRetry and slowestRetry are the delays after failed pods.
	firstRetry   = 5 * time.Second
	slowestRetry = 5 * time.Minute

	// startTime is how long a pod that has a node may take to start while others wait for its slot: it is being fetched, and its
	// volumes attached and formatted. What is known to be in its way has less time.
	startTime   = 15 * time.Minute
	problemTime = time.Minute

	longestMessage = 1024
)

// plan is what to do about a Volume, in this order.
type plan struct {
	remove []metav1.Object
	copy   *v1beta1.VolumeCopy // to write into the status; nil if it stays
	// condition is Populated, to write with it.
	condition *metav1.Condition
	event     *event // about what is written
	begin     bool   // make the temporary source
	bind      []role // whose PersistentVolume or claim is missing
	start     int32  // the attempt whose pod to create; 0: none
	giveBack  string // why to give the slot back, after what is removed
	again     time.Duration
}

type event struct{ kind, reason, message string }

// remove plans the removal of objects of one kind.
func remove[T metav1.Object](p *plan, objects iter.Seq[T]) {
	for o := range objects {
		p.remove = append(p.remove, o)
	}
}

// newPlan takes the next step.
func newPlan(o observed) (p plan) {
	for _, t := range o.others {
		p.dismantle(t)
	}
	switch v := o.target; {
	case v == nil, v.Unreadable() != nil, v.Spec.PopulatedBy != v1beta1.PopulatedByPod: // an unreadable one is left alone
	case v.DeletionTimestamp != nil, v.DeletionRequested(), !isPopulated(v), !v.IsBeingPopulated():
		p.dismantle(o.own)
	case v.Status.CreationTime == nil: // its agent makes it
	default:
		p.populate(o)
	}
	return p
}

// dismantle removes what there is of a copy, what uses something before that, and the temporary source last.
func (p *plan) dismantle(t traces) {
	if t.isEmpty() {
		return
	}
	p.again = kube.Sooner(p.again, kube.LookAgain)
	switch {
	case len(t.pods) > 0:
		remove(p, slices.Values(t.pods))
	case len(t.claims) > 0:
		remove(p, maps.Values(t.claims))
	case len(t.persistent) > 0:
		remove(p, maps.Values(t.persistent))
	case len(t.attached) == 0:
		remove(p, slices.Values(t.temporary))
	}
}

// copied is how far the copy is, by the status.
func (o observed) copied() v1beta1.VolumeCopy {
	return *cmp.Or(o.target.Status.Copy, &v1beta1.VolumeCopy{Phase: v1beta1.CopyPending})
}

func (p *plan) populate(o observed) {
	now := o.copied()
	switch next := now; {
	case o.target.HasContent() && now.Phase != v1beta1.CopyComplete: // it was verified then, and an application may have written to it since
		p.dismantle(o.own)
		p.again = soon
		next.Phase, next.Message, next.Checksum = v1beta1.CopyComplete, "", ""
		p.write(o, next, nil)
	case now.Phase == v1beta1.CopyFailed:
		p.dismantle(o.own)
	case now.Phase == v1beta1.CopyComplete && o.own.isUsed():
		p.dismantle(o.own)
	case now.Phase == v1beta1.CopyComplete && !o.target.HasContent(): // what an application writes is never taken for half a copy
		p.wait(o, now, "its pool has yet to record that it has all of its content")
	case now.Phase == v1beta1.CopyComplete: // the temporary source goes after that: its node may be down
		p.again, now.Message = soon, ""
		proof := cmp.Or(now.Checksum, "its pool says so, and its object was older than that")
		p.write(o, now, &event{core.EventTypeNormal, v1beta1.ReasonPopulated, "all of its content is there: " + proof})
		p.condition = condition(o, metav1.ConditionTrue, v1beta1.ReasonPopulated, "its content was copied and verified: "+proof)
	case o.waits != "":
		p.wait(o, next, o.waits)
	case o.own.source == nil && o.own.isUsed(): // what it was is gone, and the PersistentVolume of another is another
		p.dismantle(o.own)
	case o.own.source == nil || !o.own.source.IsComplete() || o.own.source.DeletionTimestamp != nil:
		p.begin, p.again = true, lookAgain
	case o.own.isLeaving(): // it goes only after what uses it, and is made again when all is gone
		p.dismantle(o.own)
	case len(o.own.persistent) < len(roles) || len(o.own.claims) < len(roles):
		p.bind, p.again = roles, soon
	default:
		p.run(o, now)
	}
}

// isLeaving says whether something of the copy is being deleted by another, or a PersistentVolume was bound to a claim that is
// gone: Kubernetes binds it to no other.
func (t traces) isLeaving() bool {
	for _, r := range roles {
		pv, c := t.persistent[r], t.claims[r]
		if pv != nil && pv.DeletionTimestamp != nil || c != nil && c.DeletionTimestamp != nil {
			return true
		}
		if pv != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID != "" && (c == nil || c.UID != pv.Spec.ClaimRef.UID) {
			return true
		}
	}
	return false
}

// pod is that of the newest attempt.
func (o observed) pod() *core.Pod {
	if len(o.own.pods) == 0 {
		return nil
	}
	return o.own.pods[len(o.own.pods)-1]
}

// run starts the pod, follows it, and judges it.
func (p *plan) run(o observed, now v1beta1.VolumeCopy) {
	next, pod := now, o.pod()
	ended := terminated(pod)
	switch {
	case pod == nil && o.down != "":
		p.wait(o, now, o.down)
	case pod == nil: // one that was deleted by another is of the same attempt when it is made again
		p.start = max(now.Attempt, 1)
		p.started(o, now, p.start)
	case attemptOf(o.target.UID, pod) > now.Attempt: // the process that made it was killed before it wrote that
		p.started(o, now, attemptOf(o.target.UID, pod))
	case pod.DeletionTimestamp != nil:
		p.wait(o, next, "its pod is being deleted on node "+pod.Spec.NodeName+", and another goes on when it is gone")
	case attemptOf(o.target.UID, pod) < now.Attempt: // its failure is in the status
		if left := pause(pod, ended, now.Failures, o.now); left > 0 {
			p.again = left
			return
		}
		p.again = kube.LookAgain
		remove(p, slices.Values(o.own.pods))
	case ended != nil && ended.ExitCode == 0 && pod.Status.Phase != core.PodFailed:
		p.succeed(o, now, ended)
	case ended != nil || podstatus.HasEnded(pod):
		p.fail(o, now, pod, ended)
	case isRunning(pod):
		p.again = progressEvery
		next.Message = o.down
		p.advance(o, next)
	default:
		why := podstatus.Pending(pod, containerName)
		p.wait(o, next, why)
		if o.wanted && cannotStart(pod, o.now) { // one that stayed might start beside those that get the slot
			p.giveBack = why
			remove(p, slices.Values(o.own.pods))
		}
	}
}

// cannotStart says whether a pod that has not started has had its time.
func cannotStart(pod *core.Pod, now time.Time) bool {
	since, limit := pod.CreationTimestamp, startTime
	if pod.Status.StartTime != nil { // its kubelet knows it
		since = *pod.Status.StartTime
	}
	if podstatus.Unscheduled(pod) != "" || podstatus.Waiting(podstatus.Container(pod, containerName)) != nil {
		limit = problemTime
	}
	return now.Sub(since.Time) > limit
}

// started writes which attempt there is a pod of.
func (p *plan) started(o observed, now v1beta1.VolumeCopy, attempt int32) {
	next := now
	next.Attempt, next.Message = attempt, ""
	p.again = progressEvery
	var e *event
	if now.Attempt == 0 {
		e = &event{core.EventTypeNormal, v1beta1.ReasonCopyStarted, fmt.Sprintf("a pod copies the content of %s %s on %s into %s",
			strings.ToLower(string(o.target.Spec.SourceRef.Kind)), o.target.Spec.SourceRef.Name, place(o.own.source), place(o.target))}
	}
	p.write(o, next, e)
}

// place is where a volume is, in words.
func place(v *v1beta1.Volume) string {
	if site := v1beta1.SiteOf(v.Spec.Node); site.Kind != "" {
		return site.String()
	}
	return fmt.Sprintf("node %s, pool %s", v.Spec.Node, v.PoolName())
}

// advance writes what the pod has said, unless it says less than another has said before it.
func (p *plan) advance(o observed, next v1beta1.VolumeCopy) {
	said := o.log
	if said == nil || said.Total < 0 || said.Done < 0 || stage(phaseOf(said)) == 0 {
		p.write(o, next, nil)
		return
	}
	before, phase := next, phaseOf(said)
	if stage(phase) > stage(next.Phase) || phase == next.Phase && said.Done > next.BytesDone {
		next.Phase, next.BytesDone, next.BytesTotal, next.Failures = phase, said.Done, said.Total, 0
	}
	var e *event
	if tenth := next.Percent() / 10; tenth > 0 && (before.Phase != next.Phase || before.Percent()/10 < tenth) {
		e = &event{core.EventTypeNormal, v1beta1.ReasonCopyProgress, fmt.Sprintf("%s: %s of %s", &next, v1beta1.Readable(v1beta1.Quantity(next.BytesDone)), v1beta1.Readable(v1beta1.Quantity(next.BytesTotal)))}
	}
	p.write(o, next, e)
}

func phaseOf(said *protocol.Progress) v1beta1.CopyPhase { return v1beta1.CopyPhase(said.Phase) }

// stage orders the phases in which a pod works; it is 0 for any other.
func stage(p v1beta1.CopyPhase) int {
	return 1 + slices.Index([]v1beta1.CopyPhase{v1beta1.CopyCopying, v1beta1.CopyVerifying}, p)
}

var checksum = regexp.MustCompile("^[0-9a-f]{64}$")

func (p *plan) succeed(o observed, now v1beta1.VolumeCopy, ended *core.ContainerStateTerminated) {
	var r protocol.Result
	if err := json.Unmarshal([]byte(ended.Message), &r); err != nil || r.Bytes < 0 || !checksum.MatchString(r.SHA256) {
		p.count(o, now, fmt.Sprintf("its pod ended with exit code 0, but its termination message is not what it verified: %q", kube.Shorten(ended.Message, 200)))
		return
	}
	next := now
	next.Phase, next.BytesDone, next.BytesTotal, next.Failures, next.Message, next.Checksum = v1beta1.CopyComplete, r.Bytes, r.Bytes, 0, "", "sha256:"+r.SHA256
	p.again = soon
	p.write(o, next, &event{core.EventTypeNormal, v1beta1.ReasonCopyVerified, fmt.Sprintf("%s in %d files are the same in both: %s", v1beta1.Readable(v1beta1.Quantity(r.Bytes)), r.Files, next.Checksum)})
}

func (p *plan) fail(o observed, now v1beta1.VolumeCopy, pod *core.Pod, ended *core.ContainerStateTerminated) {
	why := because(pod, ended)
	if ended != nil && ended.ExitCode == protocol.FinalExit {
		p.giveUp(o, now, why)
		return
	}
	if hasContent(ended) { // giving up would remove it
		now.Failures = 0
	}
	p.count(o, now, why)
}

// count counts a failed pod. That its attempt is below that in the status says that it is counted.
func (p *plan) count(o observed, now v1beta1.VolumeCopy, why string) {
	next := now
	next.Failures++
	if next.Failures >= mostFailures {
		p.giveUp(o, next, fmt.Sprintf("%d pods in a row have failed without any progress, the last one because %s", next.Failures, why))
		return
	}
	next.Attempt++
	next.Message = kube.Shorten(fmt.Sprintf("attempt %d failed: %s", now.Attempt, why), longestMessage)
	p.again = soon
	p.write(o, next, &event{core.EventTypeWarning, v1beta1.ReasonCopyRetried, next.Message})
}

// giveUp ends the copy. CreateVolume returns the message, and removes the Volume.
func (p *plan) giveUp(o observed, now v1beta1.VolumeCopy, why string) {
	now.Phase, now.Message = v1beta1.CopyFailed, kube.Shorten(why, longestMessage)
	p.begin, p.again = false, soon
	p.write(o, now, &event{core.EventTypeWarning, v1beta1.ReasonCopyFailed, now.Message})
	p.condition = condition(o, metav1.ConditionFalse, v1beta1.ReasonCopyFailed, now.Message)
}

func (p *plan) wait(o observed, next v1beta1.VolumeCopy, why string) {
	next.Message = kube.Shorten(why, longestMessage)
	p.again = kube.Sooner(p.again, lookAgain)
	p.write(o, next, nil)
}

// write plans to write the status, if it has changed.
func (p *plan) write(o observed, next v1beta1.VolumeCopy, e *event) {
	if e == nil && next == *cmp.Or(o.target.Status.Copy, &v1beta1.VolumeCopy{}) {
		return
	}
	p.copy, p.event = &next, e
	p.condition = condition(o, metav1.ConditionFalse, v1beta1.ReasonPopulating, "a pod copies its content, see status.copy")
}

func condition(o observed, status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{
		Type: v1beta1.PopulatedCondition, Status: status, Reason: reason, Message: kube.Shorten(message, kube.LongestMessage), ObservedGeneration: o.target.Generation,
	}
}

func hasContent(ended *core.ContainerStateTerminated) bool {
	return ended != nil && ended.ExitCode == protocol.HasContentExit
}

// pause is how long to wait after a pod that has failed.
func pause(pod *core.Pod, ended *core.ContainerStateTerminated, failures int32, now time.Time) time.Duration {
	delay := podstatus.Backoff(failures, firstRetry, slowestRetry)
	if hasContent(ended) { // its agent ends it sooner
		delay = slowestRetry
	}
	return podstatus.Pause(pod, containerName, delay, now)
}
