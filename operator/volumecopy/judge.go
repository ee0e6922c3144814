package volumecopy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
)

func containerOf(p *core.Pod) core.ContainerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s core.ContainerStatus) bool { return s.Name == containerName })
	if i < 0 {
		return core.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[i]
}

// terminated is nil while the container runs or waits, and for no pod.
func terminated(p *core.Pod) *core.ContainerStateTerminated {
	if p == nil {
		return nil
	}
	return containerOf(p).State.Terminated
}

func isRunning(p *core.Pod) bool { return containerOf(p).State.Running != nil }

// because says why a pod has failed.
func because(p *core.Pod, ended *core.ContainerStateTerminated) string {
	var said string
	switch {
	case ended != nil && ended.Reason == "OOMKilled":
		said = "it was killed for exceeding its memory limit"
	case ended != nil && strings.TrimSpace(ended.Message) != "":
		said = strings.TrimSpace(ended.Message)
	case ended != nil:
		said = fmt.Sprintf("it ended with exit code %d", ended.ExitCode)
	}
	if p.Status.Reason == "" && said != "" {
		return said
	}
	return fmt.Sprintf("pod %s failed (%s): %s", p.Name, cmp.Or(p.Status.Reason, "no reason"), cmp.Or(p.Status.Message, said, "no message"))
}

// pending says what a pod waits for that has not started.
func pending(p *core.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return "its pod cannot be scheduled: " + cmp.Or(c.Message, c.Reason)
		}
	}
	if w := containerOf(p).State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		return "its pod cannot start: " + w.Reason + ": " + w.Message
	}
	return "its pod has not started yet"
}
