// Package podstatus says what the status of a pod means.
package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// IsReady says whether a pod is ready and not being deleted.
func IsReady(p *core.Pod) bool {
	return p.DeletionTimestamp == nil && Has(p, core.PodReady, core.ConditionTrue)
}

// Container returns the status of one of its containers, which is empty as long as there is none.
func Container(p *core.Pod, name string) core.ContainerStatus {
	found := v1beta1.Find(p.Status.ContainerStatuses, func(s core.ContainerStatus) bool { return s.Name == name })
	return *cmp.Or(found, &core.ContainerStatus{})
}

// Unscheduled says why a pod cannot be scheduled; "" if it can be, or nothing is known.
func Unscheduled(p *core.Pod) string {
	if c := find(p, core.PodScheduled, core.ConditionFalse); c != nil {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

// Disruption returns the disruption that ended a pod, in parentheses; "" if there was none.
func Disruption(p *core.Pod) string {
	if c := find(p, core.DisruptionTarget, core.ConditionTrue); c != nil {
		return fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
	}
	return ""
}

// Has says whether a condition of a pod is as given.
func Has(p *core.Pod, kind core.PodConditionType, status core.ConditionStatus) bool {
	return find(p, kind, status) != nil
}

func find(p *core.Pod, kind core.PodConditionType, status core.ConditionStatus) *core.PodCondition {
	return v1beta1.Find(p.Status.Conditions, func(c core.PodCondition) bool { return c.Type == kind && c.Status == status })
}

// Claims returns the names of the claims of a pod, those that are made for it included.
func Claims(p *core.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, p.Name+"-"+v.Name)
		}
	}
	return names
}

// HasEnded says whether all containers of a pod have ended for good.
func HasEnded(p *core.Pod) bool {
	return p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
}

// starting are the reasons of containers that wait and have no problem.
var starting = []string{"", "ContainerCreating", "PodInitializing"}

// Waiting returns what a container waits for; nil unless that is a problem.
func Waiting(s core.ContainerStatus) *core.ContainerStateWaiting {
	if w := s.State.Waiting; w != nil && !slices.Contains(starting, w.Reason) {
		return w
	}
	return nil
}

// Because joins the reason and the message of what a container waits for.
func Because(w *core.ContainerStateWaiting) string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}

// pullFailures are the reasons of a container whose image cannot be pulled.
var pullFailures = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// CannotPull says whether a container waits for its image in vain.
func CannotPull(s core.ContainerStatus) bool {
	return s.State.Waiting != nil && slices.Contains(pullFailures, s.State.Waiting.Reason)
}

// startFailures are the reasons of a container that has its image and cannot be created or started.
var startFailures = []string{"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError", "ContainerCannotRun"}

// CannotStart says whether the reason of a container's state is that it has its image and cannot be created or started.
func CannotStart(reason string) bool { return slices.Contains(startFailures, reason) }

// Pending says what a container waits for that has not started.
func Pending(p *core.Pod, container string) string {
	if why := Unscheduled(p); why != "" {
		return "its pod cannot be scheduled: " + why
	}
	s := Container(p, container)
	switch w := Waiting(s); {
	case w == nil:
		return "its pod has not started yet"
	case CannotPull(s):
		image := s.Image
		for _, c := range p.Spec.Containers {
			if c.Name == container {
				image = c.Image
			}
		}
		return fmt.Sprintf("image %s cannot be pulled: %s", image, Because(w))
	default:
		return "its container cannot start: " + Because(w)
	}
}

// Ended describes the end of a container that failed.
func Ended(t *core.ContainerStateTerminated) string {
	switch {
	case t.Reason == "OOMKilled":
		return "it was killed for exceeding its memory limit"
	case CannotStart(t.Reason) && t.Message != "":
		return fmt.Sprintf("it ended with exit code %d: %s", t.ExitCode, t.Message)
	}
	return fmt.Sprintf("it ended with exit code %d", t.ExitCode)
}

// OutOfTime says whether the kubelet stopped a pod at its activeDeadlineSeconds.
func OutOfTime(p *core.Pod) bool { return p.Status.Reason == "DeadlineExceeded" }

// Failure describes a pod that the kubelet or a controller has ended.
func Failure(p *core.Pod) string {
	said := strings.TrimRight(cmp.Or(p.Status.Message, "no reason was given"), ".\n ")
	switch {
	case p.Status.Reason == "Evicted":
		return "its pod was evicted: " + said
	case OutOfTime(p):
		return "it was stopped when the timeout was over"
	case p.Status.Reason != "":
		return fmt.Sprintf("its pod failed (%s): %s", p.Status.Reason, said)
	case Disruption(p) != "":
		return "its pod was stopped" + Disruption(p)
	}
	return "its pod failed: " + said
}

// Backoff returns the delay after a number of failed pods, from first on doubled each time.
func Backoff(failures int32, first, slowest time.Duration) time.Duration {
	const doublings = 6
	return min(first<<min(max(failures-1, 0), doublings), slowest)
}

// Pause returns how much is left of a delay after the end of a container.
func Pause(p *core.Pod, container string, delay time.Duration, now time.Time) time.Duration {
	end := p.CreationTimestamp.Time
	if t := Container(p, container).State.Terminated; t != nil && t.FinishedAt.After(end) {
		end = t.FinishedAt.Time
	}
	return min(end.Add(delay).Sub(now), delay) // the node's clock may be ahead
}
