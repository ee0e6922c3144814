package nodejob

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// The reasons of events and conditions.
const (
	ReasonCompleted = "JobCompleted"
	ReasonFailed    = "JobFailed"
)

func (p *plan) conclude(now time.Time) {
	s := &p.status
	done, running := 0, 0
	var failed, waiting []string
	for _, n := range s.Nodes {
		switch n.Phase {
		case v1beta1.JobCompleted:
			done++
		case v1beta1.JobFailed:
			failed = append(failed, n.Name+kube.Because(": ", n.Message))
		default:
			running++
			if n.Message != "" {
				waiting = append(waiting, n.Name+": "+n.Message)
			}
		}
	}
	s.SucceededNodes, s.DesiredNodes = int32(done), int32(len(s.Nodes))
	said := fmt.Sprintf("%d/%d nodes are done", done, len(s.Nodes))
	if len(failed) > 0 {
		said += "; failed: " + few(failed)
	}
	switch {
	case running > 0:
		s.Phase = v1beta1.JobRunning
		if len(waiting) > 0 {
			said += "; waiting: " + few(waiting)
		}
		p.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, "Running", said, now)
	case len(failed) > 0:
		p.fail(ReasonFailed, said, now)
	default:
		s.Phase, s.Completed = v1beta1.JobCompleted, true
		p.finish(now)
		p.condition(v1beta1.CompleteCondition, metav1.ConditionTrue, ReasonCompleted, said, now)
	}
}

func (p *plan) fail(reason, message string, now time.Time) {
	p.status.Phase = v1beta1.JobFailed
	p.finish(now)
	p.condition(v1beta1.CompleteCondition, metav1.ConditionFalse, reason, message, now)
	p.condition(v1beta1.FailedCondition, metav1.ConditionTrue, reason, message, now)
}

func (p *plan) finish(now time.Time) {
	end := timeOf(now)
	p.status.CompletionTime, p.finished, p.again = &end, true, 0
}

func (p *plan) condition(kind string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	kube.SetRunCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.status.ObservedGeneration, LastTransitionTime: timeOf(now),
	})
}
