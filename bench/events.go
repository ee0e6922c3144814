package bench

import (
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

func (s *seen) podEvent(pod *core.Pod, gone bool, at time.Time) {
	s.mark(podCreated, pod.Name, at)
	if gone {
		s.mark(podGone, pod.Name, at)
		return
	}
	status := podstatus.Container(pod, container)
	p := podSeen{unplaced: podstatus.Unscheduled(pod)}
	if w := podstatus.Waiting(status); w != nil {
		p.waiting = podstatus.Because(w)
	}
	switch ended := status.State.Terminated; {
	case pod.Status.Phase == core.PodRunning:
		s.mark(podRunning, pod.Name, at)
	case podstatus.HasEnded(pod) && ended != nil:
		because := strings.Trim(ended.Reason+": "+strings.TrimSpace(ended.Message), ": ")
		p.ended = fmt.Sprintf("its container has ended with code %d: %s", ended.ExitCode, because)
	case podstatus.HasEnded(pod):
		p.ended = podstatus.Failure(pod)
	}
	s.pods[pod.Name] = p
}

func (s *seen) claimEvent(claim *core.PersistentVolumeClaim, gone bool, at time.Time) {
	s.mark(claimCreated, claim.Name, at)
	if claim.Status.Phase == core.ClaimBound {
		s.mark(claimBound, claim.Name, at)
	}
	if claim.DeletionTimestamp != nil || gone {
		s.mark(claimDeleted, claim.Name, at)
	}
}

func (s *seen) volumeEvent(volume *core.PersistentVolume, gone bool, at time.Time) {
	claim := volume.Spec.ClaimRef
	switch {
	case claim == nil || claim.Namespace != s.namespace:
	case gone:
		delete(s.volumes, volume.Name)
		s.mark(volumeGone, claim.Name, at)
	default:
		s.volumes[volume.Name] = volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete
	}
}

func (s *seen) warningEvent(warning *core.Event, gone bool, _ time.Time) {
	if warning.Type == core.EventTypeWarning && !gone {
		s.warnings.add(warning)
	}
}

func (s *seen) accountEvent(account *core.ServiceAccount, _ bool, _ time.Time) {
	s.account = s.account || account.Name == "default"
}

func (s *seen) namespaceEvent(namespace *core.Namespace, gone bool, _ time.Time) {
	s.namespaceGone = s.namespaceGone || namespace.Name == s.namespace && gone
}
