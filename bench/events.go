package bench

import (
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// podEvent records the state of a pod.
func (s *seen) podEvent(e event) {
	pod, ok := e.object.(*core.Pod)
	if !ok {
		return
	}
	s.update(func() {
		p := s.pod(pod.Name)
		setOnce(&p.created, e.at)
		if e.kind == watch.Deleted {
			setOnce(&p.gone, e.at)
			return
		}
		p.unplaced, p.waiting = podstatus.Unscheduled(pod), waiting(pod)
		switch pod.Status.Phase {
		case core.PodRunning:
			setOnce(&p.running, e.at)
		case core.PodFailed, core.PodSucceeded:
			p.ended = ended(pod)
		}
	})
}

func waiting(pod *core.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := podstatus.Waiting(c); w != nil {
			return podstatus.Because(w)
		}
	}
	return ""
}

func ended(pod *core.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return fmt.Sprintf("its container has ended with code %d: %s", t.ExitCode, joinReason(t.Reason, t.Message))
		}
	}
	return "it has ended: " + joinReason(pod.Status.Reason, pod.Status.Message)
}

// joinReason joins a reason and a message, either of which may be empty.
func joinReason(reason, message string) string {
	return strings.Trim(reason+": "+strings.TrimSpace(message), ": ")
}

func (s *seen) claimEvent(e event) {
	claim, ok := e.object.(*core.PersistentVolumeClaim)
	if !ok {
		return
	}
	s.update(func() {
		c := s.claim(claim.Name)
		setOnce(&c.created, e.at)
		if claim.Status.Phase == core.ClaimBound {
			setOnce(&c.bound, e.at)
		}
		// A deleted claim exists until its finalizers are removed.
		if claim.DeletionTimestamp != nil || e.kind == watch.Deleted {
			setOnce(&c.deleted, e.at)
		}
	})
}

func (s *seen) volumeEvent(e event) {
	volume, ok := e.object.(*core.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.Namespace != s.namespace {
		return
	}
	s.update(func() {
		claim := volume.Spec.ClaimRef.Name
		if e.kind == watch.Deleted {
			delete(s.volumes, volume.Name)
			setOnce(&s.claim(claim).volumeGone, e.at)
			return
		}
		s.volumes[volume.Name] = volumeSeen{claim: claim, retained: volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete}
	})
}

func (s *seen) warningEvent(e event) {
	warning, ok := e.object.(*core.Event)
	if ok && warning.Type == core.EventTypeWarning && e.kind != watch.Deleted {
		s.update(func() { s.warnings.add(warning) })
	}
}

func (s *seen) accountEvent(e event) {
	if account, ok := e.object.(*core.ServiceAccount); ok && account.Name == "default" {
		s.update(func() { s.account = true })
	}
}

func (s *seen) namespaceEvent(e event) {
	if namespace, ok := e.object.(*core.Namespace); ok && namespace.Name == s.namespace && e.kind == watch.Deleted {
		s.update(func() { s.namespaceGone = true })
	}
}
