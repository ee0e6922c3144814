package nodejob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// logState is what was read of a container's log.
type logState struct {
	found bool   // the completion word was in it
	whole bool   // it was read after the container had ended
	tail  string // its end
	err   string // why it could not be read
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

func waits(format string, args ...any) verdict { return verdict{message: fmt.Sprintf(format, args...)} }

// judge reads the pod of an attempt. word is the completion word, if one is specified.
func judge(p *core.Pod, w work, word string, log logState) verdict {
	status := containerStatus(p)
	switch {
	case word != "" && log.found, w.pulls && pulled(status):
		return verdict{done: true, exit: exitCode(status)}
	case w.pulls && status.State.Terminated == nil && p.Status.Phase != core.PodFailed && p.DeletionTimestamp == nil:
		return pending(p, status)
	case status.State.Terminated != nil && !w.pulls:
		return ended(p, status.State.Terminated, word, log)
	case p.Status.Phase == core.PodFailed:
		return verdict{failed: true, final: outOfTime(p), message: podFailure(p)}
	case p.DeletionTimestamp != nil:
		return waits("its pod is being deleted%s", disruption(p))
	case status.State.Running != nil:
		return verdict{}
	}
	return pending(p, status)
}

func containerStatus(p *core.Pod) core.ContainerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s core.ContainerStatus) bool { return s.Name == containerName })
	if i < 0 {
		return core.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[i]
}

func exitCode(s core.ContainerStatus) *int32 {
	if s.State.Terminated == nil {
		return nil
	}
	return &s.State.Terminated.ExitCode
}

// afterPull are the states of a container that has its image and cannot be created or started.
var afterPull = []string{"CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError", "ContainerCannotRun"}

// pulled says whether the kubelet has the image.
func pulled(s core.ContainerStatus) bool {
	switch {
	case s.ImageID != "", s.State.Running != nil:
		return true
	case s.State.Terminated != nil:
		return s.State.Terminated.ContainerID != "" || slices.Contains(afterPull, s.State.Terminated.Reason)
	}
	return s.State.Waiting != nil && slices.Contains(afterPull, s.State.Waiting.Reason)
}

// ended judges a container that ran.
func ended(p *core.Pod, t *core.ContainerStateTerminated, word string, log logState) verdict {
	v := verdict{exit: &t.ExitCode}
	switch {
	case !log.whole && !outOfTime(p):
		v.reading, v.message = true, "it has ended; its log is being read"
	case word != "" && leftWord(t, word):
		v.done = true
	case endedByDeletion(p, t):
		v.failed, v.message = true, "its pod was deleted"+disruption(p)
	case word == "" && t.ExitCode == 0 && p.Status.Phase != core.PodFailed:
		v.done = true
	case outOfTime(p):
		v.failed, v.final, v.message = true, true, podFailure(p)
	case p.Status.Reason != "" || disruption(p) != "":
		v.failed, v.message = true, podFailure(p)
	case word != "" && log.err != "":
		v.failed, v.message = true, fmt.Sprintf("it ended with exit code %d, and its log cannot be read: %s", t.ExitCode, log.err)
	case word != "":
		v.failed, v.message = true, fmt.Sprintf("it ended with exit code %d and did not write %q, neither to /dev/termination-log nor to the part of its log that is left", t.ExitCode, word)
	case t.Reason == "OOMKilled":
		v.failed, v.message = true, "it was killed for exceeding its memory limit"
	default:
		v.failed, v.message = true, fmt.Sprintf("it ended with exit code %d%s", t.ExitCode, startFailure(t))
	}
	return v
}

// leftWord says whether the container's termination message has the word: what it wrote to /dev/termination-log, or the
// end of its log if it wrote nothing there and failed. The message is in the pod's status even if the log is lost. The
// runtime's message about a container that never ran does not count: it may quote the command, and so the word.
func leftWord(t *core.ContainerStateTerminated, word string) bool {
	return !slices.Contains(afterPull, t.Reason) && strings.Contains(t.Message, word)
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

// startFailure describes a container that never ran.
func startFailure(t *core.ContainerStateTerminated) string {
	if !slices.Contains(afterPull, t.Reason) || t.Message == "" {
		return ""
	}
	return ": " + t.Message
}

func outOfTime(p *core.Pod) bool { return p.Status.Reason == "DeadlineExceeded" }

// podFailure describes a pod that the kubelet or a controller has ended.
func podFailure(p *core.Pod) string {
	said := strings.TrimRight(cmp.Or(p.Status.Message, "no reason was given"), ".\n ")
	switch p.Status.Reason {
	case "Evicted":
		return "its pod was evicted: " + said
	case "DeadlineExceeded":
		return "it was stopped when the timeout was over"
	case "":
		if d := disruption(p); d != "" {
			return "its pod was stopped" + d
		}
		return "its pod failed: " + said
	}
	return fmt.Sprintf("its pod failed (%s): %s", p.Status.Reason, said)
}

// disruption returns the disruption that ended the pod, if there was one.
func disruption(p *core.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == core.DisruptionTarget && c.Status == core.ConditionTrue {
			return fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
		}
	}
	return ""
}

// pullFailures are the states of a container whose image cannot be pulled.
var pullFailures = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// pending says what a container waits for that has not started.
func pending(p *core.Pod, s core.ContainerStatus) verdict {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return waits("its pod cannot be scheduled: %s", cmp.Or(c.Message, c.Reason))
		}
	}
	w := s.State.Waiting
	if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
		return waits("its pod has not started yet")
	}
	v := waits("its container cannot start: %s", because(w))
	if slices.Contains(pullFailures, w.Reason) {
		v = waits("image %s cannot be pulled: %s", p.Spec.Containers[0].Image, because(w))
	}
	if w.Reason == "InvalidImageName" {
		v.failed, v.final = true, true
	}
	return v
}

func because(w *core.ContainerStateWaiting) string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}
