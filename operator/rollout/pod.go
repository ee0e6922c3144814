package rollout

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// alternating are the reasons between which the kubelet alternates during the retries of a pull, with the one that is reported.
var alternating = map[string]string{
	"ErrImagePull": "ImagePullBackOff", "ImagePullBackOff": "ImagePullBackOff",
	"RegistryUnavailable": "ImagePullBackOff", "SignatureValidationFailed": "ImagePullBackOff",
}

// PullTrouble returns the reason why an image of a pod cannot be pulled; "" if none waits for one.
func PullTrouble(p *core.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if podstatus.CannotPull(s) {
			return cmp.Or(alternating[s.State.Waiting.Reason], s.State.Waiting.Reason)
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
	if waiting := s.State.Waiting; waiting != nil && alternating[waiting.Reason] != "" {
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
