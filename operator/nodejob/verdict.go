package nodejob

import (
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// logState is what was read of a container's log.
type logState struct {
	found bool   // the completion word was in it
	whole bool   // it was read after the container had ended
	tail  string // its end
	err   error  // why it could not be read
}

// verdict is the result of an attempt, by its pod.
type verdict struct {
	done    bool
	failed  bool
	final   bool // failed, and a retry cannot help
	reading bool // it has ended, and its log must be read first
	exit    *int32
	message string // why it failed, or what it waits for
}

// judge reads the pod of an attempt. word is the completion word, if one is specified.
func judge(p *core.Pod, w work, word string, log logState) verdict {
	status := containerStatus(p)
	switch {
	case word != "" && log.found, w.pulls && pulled(status):
		v := verdict{done: true}
		if status.State.Terminated != nil {
			v.exit = &status.State.Terminated.ExitCode
		}
		return v
	case w.pulls && status.State.Terminated == nil && p.Status.Phase != core.PodFailed && p.DeletionTimestamp == nil:
		return pending(p, status)
	case status.State.Terminated != nil && !w.pulls:
		return ended(p, status.State.Terminated, word, log)
	case p.Status.Phase == core.PodFailed:
		return verdict{failed: true, final: podstatus.OutOfTime(p), message: podstatus.Failure(p)}
	case p.DeletionTimestamp != nil:
		return verdict{message: "its pod is being deleted" + podstatus.Disruption(p)}
	case status.State.Running != nil:
		return verdict{}
	}
	return pending(p, status)
}

func containerStatus(p *core.Pod) core.ContainerStatus { return podstatus.Container(p, containerName) }

// pulled says whether the kubelet has the image.
func pulled(s core.ContainerStatus) bool {
	switch {
	case s.ImageID != "", s.State.Running != nil:
		return true
	case s.State.Terminated != nil:
		return s.State.Terminated.ContainerID != "" || podstatus.CannotStart(s.State.Terminated.Reason)
	}
	return s.State.Waiting != nil && podstatus.CannotStart(s.State.Waiting.Reason)
}

// ended judges a container that ran.
func ended(p *core.Pod, t *core.ContainerStateTerminated, word string, log logState) verdict {
	v := verdict{exit: &t.ExitCode}
	switch {
	case !log.whole && !podstatus.OutOfTime(p):
		v.reading, v.message = true, "it has ended; its log is being read"
	// The word may be in what the container wrote to /dev/termination-log, or in the end of its log if it wrote nothing there
	// and failed: that is in the pod's status even if the log is lost. The runtime's message about a container that never ran
	// does not count: it may quote the command, and so the word.
	case word != "" && !podstatus.CannotStart(t.Reason) && strings.Contains(t.Message, word):
		v.done = true
	case endedByDeletion(p, t):
		v.failed, v.message = true, "its pod was deleted"+podstatus.Disruption(p)
	case word == "" && t.ExitCode == 0 && p.Status.Phase != core.PodFailed:
		v.done = true
	case podstatus.OutOfTime(p):
		v.failed, v.final, v.message = true, true, podstatus.Failure(p)
	case p.Status.Reason != "" || podstatus.Disruption(p) != "":
		v.failed, v.message = true, podstatus.Failure(p)
	case word != "" && log.err != nil:
		v.failed, v.message = true, fmt.Sprintf("it ended with exit code %d, and its log cannot be read: %v", t.ExitCode, log.err)
	case word != "":
		v.failed, v.message = true, fmt.Sprintf("it ended with exit code %d and did not write %q, neither to /dev/termination-log nor to the part of its log that is left", t.ExitCode, word)
	default:
		v.failed, v.message = true, podstatus.Ended(t)
	}
	return v
}

// endedByDeletion says whether the container ended after the deletion of its pod began: then even exit code 0 proves
// nothing.
func endedByDeletion(p *core.Pod, t *core.ContainerStateTerminated) bool {
	if p.DeletionTimestamp == nil {
		return false
	}
	asked := p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
	return !t.FinishedAt.Time.Before(asked)
}

// pending says what a container waits for that has not started.
func pending(p *core.Pod, s core.ContainerStatus) verdict {
	invalid := s.State.Waiting != nil && s.State.Waiting.Reason == "InvalidImageName"
	return verdict{failed: invalid, final: invalid, message: podstatus.Pending(p, containerName)}
}
