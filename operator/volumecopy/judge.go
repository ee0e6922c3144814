package volumecopy

import (
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// terminated is nil while the container runs or waits, and for no pod.
func terminated(p *core.Pod) *core.ContainerStateTerminated {
	if p == nil {
		return nil
	}
	return podstatus.Container(p, containerName).State.Terminated
}

func isRunning(p *core.Pod) bool { return podstatus.Container(p, containerName).State.Running != nil }

// because says why a pod has failed: by what ended it, by what it has said itself, or by how it ended.
func because(p *core.Pod, ended *core.ContainerStateTerminated) string {
	switch {
	case p.Status.Reason != "" || ended == nil:
		return podstatus.Failure(p)
	case ended.Reason != "OOMKilled" && strings.TrimSpace(ended.Message) != "":
		return strings.TrimSpace(ended.Message)
	}
	return podstatus.Ended(ended)
}
