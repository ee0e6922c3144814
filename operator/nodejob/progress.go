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
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

func (r *round) timeout() time.Duration {
	if t, err := r.job.Spec.Timeout.Or(0); err == nil && t > 0 {
		return t
	}
	return defaultTimeout
}

// retries is how many failed attempts are retried.
func (r *round) retries() int32 { return ptr.Deref(r.job.Spec.BackoffLimit, defaultBackoff) }

// left returns the time that the node has left, counted from the first attempt.
func (r *round) left(n *v1beta1.NodeResult) time.Duration {
	if n.StartTime == nil {
		return r.timeout()
	}
	return n.StartTime.Add(r.timeout()).Sub(r.now)
}

// attempt starts the next attempt when its delay is over.
func (r *round) attempt(n *v1beta1.NodeResult, last *core.Pod, v verdict, left time.Duration) {
	if v.failed {
		n.Message = fmt.Sprintf("attempt %d of %d: %s", n.Attempts, r.retries()+1, kube.Shorten(v.message, longestMessage))
		n.ExitCode = v.exit
	}
	// An attempt whose pod is gone has no end time and is retried at once.
	if last != nil && n.Attempts > 0 {
		if pause := podstatus.Pause(last, containerName, podstatus.Backoff(n.Attempts, firstRetry, slowestRetry), r.now); pause > 0 {
			r.within(min(pause, left))
			return
		}
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

// wait leaves the attempt running.
func (r *round) wait(n *v1beta1.NodeResult, pod *core.Pod, v verdict, left time.Duration) {
	n.Phase, n.Message = v1beta1.JobRunning, kube.Shorten(v.message, longestMessage)
	if left > 0 { // otherwise a log is being read, which queues the job
		r.within(left)
	}
	if pod != nil && (v.reading || r.job.Spec.CompletionWord != "" && containerStatus(pod).State.Running != nil) {
		r.read = append(r.read, pod)
	}
}

// lastWords requests, once, the log of a container that has run out of time, since it may show why. A followed log is
// known already.
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

// over says whether nothing of a pod runs, or will. The phase is not enough: it changes only after the kubelet has
// cleaned up.
func over(p *core.Pod) bool {
	return containerStatus(p).State.Terminated != nil || podstatus.HasEnded(p)
}

func (p *plan) endIfAny(pod *core.Pod) {
	if pod != nil && pod.DeletionTimestamp == nil {
		p.end = append(p.end, pod)
	}
}

// within reconciles the job again after d at the latest.
func (p *plan) within(d time.Duration) {
	p.again = kube.Sooner(p.again, max(d, 10*time.Millisecond))
}

func timeOf(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Limits of a job's status, so that the object of a job on a thousand nodes can be stored.
const (
	longestMessage = 512
	longestTail    = 2048
	allTails       = 256 << 10
)

func tailLimit(nodes int) int { return min(longestTail, allTails/max(nodes, 1)) }

// lastBytes returns the end of a text, without splitting a character.
func lastBytes(text string, limit int) string {
	return strings.ToValidUTF8(text[max(0, len(text)-limit):], "")
}
