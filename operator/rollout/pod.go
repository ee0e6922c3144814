package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// unpullable are the reasons of a container whose image cannot be pulled, and the one that is reported: during retries
// the kubelet alternates between the first two.
var unpullable = map[string]string{
	"ErrImagePull": "ImagePullBackOff", "ImagePullBackOff": "ImagePullBackOff",
	"InvalidImageName": "InvalidImageName", "ErrImageNeverPull": "ErrImageNeverPull",
}

// PullTrouble returns the reason why an image of a pod cannot be pulled; "" if none waits for one.
func PullTrouble(p *core.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if waiting := s.State.Waiting; waiting != nil && unpullable[waiting.Reason] != "" {
			return unpullable[waiting.Reason]
		}
	}
	return ""
}

// identifiers of containers differ at each attempt.
var identifiers = regexp.MustCompile("[0-9a-f]{32,}")

// longestTrouble is the maximum length of a message.
const longestTrouble = 300

// Trouble says why a pod is not ready, and whether that is a failure and not only a matter of time. It returns the same
// text for the same problem at every attempt of the kubelet.
func Trouble(p *core.Pod) (why string, failed bool) {
	if why := podstatus.Unscheduled(p); why != "" {
		return brief("it is not scheduled", why), true
	}
	waits := ""
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Ready {
			continue
		}
		if why := ofContainer(s); why != "" {
			return fmt.Sprintf("container %s: %s", s.Name, why), true
		}
		if s.State.Running != nil && waits == "" {
			waits = fmt.Sprintf("container %s runs and does not answer its readiness probe", s.Name)
		}
	}
	return waits, false
}

func ofContainer(s core.ContainerStatus) string {
	if waiting := s.State.Waiting; waiting != nil && unpullable[waiting.Reason] == "ImagePullBackOff" {
		return fmt.Sprintf("its image %s cannot be pulled", s.Image)
	}
	for _, end := range []*core.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil && end.ExitCode != 0 {
			return brief(fmt.Sprintf("it ended with code %d", end.ExitCode), end.Message)
		}
	}
	if w := podstatus.Waiting(s); w != nil {
		return brief(w.Reason, w.Message)
	}
	return ""
}

func brief(what, message string) string {
	message = identifiers.ReplaceAllString(strings.Join(strings.Fields(message), " "), "...")
	if message == "" {
		return what
	}
	return what + ": " + kube.Shorten(message, longestTrouble)
}
