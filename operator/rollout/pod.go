package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/kube"
)

// IsReady says whether a pod is ready and not being deleted.
func IsReady(p *core.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.PodReady && c.Status == core.ConditionTrue
	})
}

// passing are reasons of waiting containers that are no failure.
var passing = []string{"", "ContainerCreating", "PodInitializing"}

// pulls are reasons that alternate while an image cannot be pulled.
var pulls = []string{"ErrImagePull", "ImagePullBackOff"}

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
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
			return brief("it is not scheduled", c.Message), true
		}
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
	waiting := s.State.Waiting
	if waiting != nil && slices.Contains(pulls, waiting.Reason) {
		return fmt.Sprintf("its image %s cannot be pulled", s.Image)
	}
	for _, end := range []*core.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil && end.ExitCode != 0 {
			return brief(fmt.Sprintf("it ended with code %d", end.ExitCode), end.Message)
		}
	}
	if waiting != nil && !slices.Contains(passing, waiting.Reason) {
		return brief(waiting.Reason, waiting.Message)
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
