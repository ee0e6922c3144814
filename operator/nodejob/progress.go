package nodejob

import (
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

func (r *round) timeout() time.Duration {
	if t, err := r.job.Spec.Timeout.Or(0); err == nil && t > 0 {
		return t
	}
	return defaultTimeout
}

// retries is how many attempts may fail and be tried again.
func (r *round) retries() int32 { return ptr.Deref(r.job.Spec.BackoffLimit, defaultBackoff) }

// left is the time that the node still has. It begins with the first attempt.
func (r *round) left(n *v1beta1.NodeResult) time.Duration {
	if n.StartTime == nil {
		return r.timeout()
	}
	return n.StartTime.Add(r.timeout()).Sub(r.now)
}

// attempt begins the next one, when it is time.
func (r *round) attempt(n *v1beta1.NodeResult, last *core.Pod, v verdict, left time.Duration) {
	if v.failed {
		n.Message = fmt.Sprintf("attempt %d of %d: %s", n.Attempts, r.retries()+1, kube.Shorten(v.message, longestMessage))
		n.ExitCode = v.exit
	}
	if pause := r.pause(last, n.Attempts); pause > 0 {
		r.within(min(pause, left))
		return
	}
	n.Attempts++
	n.Phase = v1beta1.JobRunning
	if n.StartTime == nil {
		start := timeOf(r.now)
		n.StartTime = &start
	}
	r.endIfAny(last)
	r.create = append(r.create, podOf(r.job, r.on(n.Name), r.settings, n.Name, n.Attempts, left))
	r.within(left)
}

// pause is how long to wait until the next attempt. An attempt whose pod is gone has no end time, and is retried at
// once.
func (r *round) pause(last *core.Pod, attempts int32) time.Duration {
	if last == nil || attempts == 0 {
		return 0
	}
	end := last.CreationTimestamp.Time
	if t := containerStatus(last).State.Terminated; t != nil && t.FinishedAt.After(end) {
		end = t.FinishedAt.Time
	}
	delay := slowestRetry
	if attempts < 6 {
		delay = min(firstRetry<<(attempts-1), slowestRetry)
	}
	return min(end.Add(delay).Sub(r.now), delay) // the node's clock may be ahead
}

// wait leaves the attempt at work.
func (r *round) wait(n *v1beta1.NodeResult, pod *core.Pod, v verdict, left time.Duration) {
	n.Phase, n.Message = v1beta1.JobRunning, kube.Shorten(v.message, longestMessage)
	if left > 0 { // else a log is being read, which makes it look again
		r.within(left)
	}
	switch {
	case pod == nil:
	case v.reading:
		r.read = append(r.read, pod)
	case r.job.Spec.CompletionWord != "" && containerStatus(pod).State.Running != nil:
		r.follow = append(r.follow, pod)
	}
}

// lastWords asks once for the log of a container that runs out of time: it may say why. One that is followed is known.
func (r *round) lastWords(pod *core.Pod) bool {
	if pod == nil || r.job.Spec.CompletionWord != "" || containerStatus(pod).State.Running == nil || r.logs[pod.UID] != (logState{}) {
		return false
	}
	r.read = append(r.read, pod)
	return true
}

// finish records the result of a node. A pod that still runs there is deleted; one that has ended by itself stays for
// inspection.
func (r *round) finish(n *v1beta1.NodeResult, pod *core.Pod, phase v1beta1.JobPhase, v verdict) {
	n.Phase, n.ExitCode, n.Message = phase, v.exit, ""
	if phase == v1beta1.JobFailed {
		n.Message = kube.Shorten(v.message, longestMessage)
	}
	if pod == nil {
		return
	}
	n.Log = lastBytes(r.logs[pod.UID].tail, r.budget)
	if !over(pod) {
		r.endIfAny(pod)
	}
}

// over says whether nothing of a pod runs, or will. Its container has ended before its phase says so: only when the
// kubelet has cleaned up behind it.
func over(p *core.Pod) bool {
	return containerStatus(p).State.Terminated != nil || p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
}

func (p *plan) endIfAny(pod *core.Pod) {
	if pod != nil && pod.DeletionTimestamp == nil {
		p.end = append(p.end, pod)
	}
}

// within asks for another look after d at the latest.
func (p *plan) within(d time.Duration) {
	p.again = kube.Sooner(p.again, max(d, 10*time.Millisecond))
}

func timeOf(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// orElse is the text with what joins it, or nothing.
func orElse(joint, text string) string {
	if text == "" {
		return ""
	}
	return joint + text
}

// What of a job's status is bounded, so that a job on a thousand nodes stays an object that can be stored.
const (
	longestMessage = 512
	longestTail    = 2048
	allTails       = 256 << 10
)

func tailLimit(nodes int) int { return min(longestTail, allTails/max(nodes, 1)) }

// lastBytes keeps the end, and no half of a character.
func lastBytes(text string, limit int) string {
	return strings.ToValidUTF8(text[max(0, len(text)-limit):], "")
}
