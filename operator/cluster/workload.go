package cluster

import (
	"cmp"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// workload is the controller's own Deployment or StatefulSet.
type workload struct {
	rollout.Workload

	kind   string
	reason string // why an image of its pods cannot be pulled; "" otherwise
}

// controllerKind returns the kind that the spec specifies.
func (s *situation) controllerKind() string {
	if strategy := s.cluster.Spec.Controller.Kind; strategy != "" {
		return string(strategy)
	}
	return "Deployment"
}

// controller returns the workload of the kind that the spec specifies.
func (s *situation) controller() workload {
	for _, w := range s.controllers {
		if w.kind == s.controllerKind() {
			return s.troubled(w)
		}
	}
	return workload{kind: s.controllerKind(), Workload: rollout.Workload{Waiting: "the " + s.controllerKind() + " " + v1beta1.ControllerName + " to be made"}}
}

// troubled adds why a pod of the controller does not start, if its image cannot be pulled or it takes too long.
func (s *situation) troubled(w workload) workload {
	if w.Ready {
		return w
	}
	for _, p := range s.controllerPods {
		if w.reason = rollout.PullTrouble(p); w.reason != "" && p.DeletionTimestamp == nil {
			w.Waiting += described(p)
			break
		}
	}
	if w.kind != string(v1beta1.AsStatefulSet) {
		return w // a Deployment reports that in its status
	}
	if p, since := s.lateSince(); p != nil && s.now.Sub(since) >= startingLasts {
		if w.Failed = true; w.reason == "" {
			w.Waiting += described(p)
		}
	}
	return w
}

func described(p *core.Pod) string {
	why, _ := rollout.Trouble(p)
	return fmt.Sprintf("; pod %s: %s", p.Name, cmp.Or(why, "it is not ready"))
}

// startingLasts is how long a pod of a StatefulSet may be unready, which has no deadline, unlike a Deployment.
const startingLasts = 2 * time.Minute

// lateSince returns the pod of the controller's StatefulSet that has been unready for longest; nil if all are ready.
func (s *situation) lateSince() (latest *core.Pod, since time.Time) {
	for _, p := range s.controllerPods {
		owner := metav1.GetControllerOf(p)
		if owner == nil || owner.Kind != string(v1beta1.AsStatefulSet) || podstatus.IsReady(p) {
			continue
		}
		from := p.CreationTimestamp.Time
		for _, c := range p.Status.Conditions {
			if c.Type == core.PodReady && c.LastTransitionTime.After(from) {
				from = c.LastTransitionTime.Time
			}
		}
		if latest == nil || from.Before(since) {
			latest, since = p, from
		}
	}
	return latest, since
}

// controllerLate returns the time left for a pod of the controller to become ready; 0 if none is waited for.
func (s *situation) controllerLate() time.Duration {
	w := s.controller()
	if w.Ready || w.Failed || w.kind != string(v1beta1.AsStatefulSet) {
		return 0
	}
	p, since := s.lateSince()
	if p == nil {
		return 0
	}
	return startingLasts - s.now.Sub(since)
}

// controllerAvailable says whether any pod serves.
func (s *situation) controllerAvailable() bool {
	for _, w := range s.controllers {
		if w.Available {
			return true
		}
	}
	return false
}
