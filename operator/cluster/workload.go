package cluster

import (
	"cmp"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// workload is the controller's own Deployment or StatefulSet, or the Deployment of a pool in a Ceph cluster.
type workload struct {
	kind      string
	available bool   // a pod serves
	ready     bool   // all pods are updated and ready
	rolling   bool   // a pod is to be replaced by one that is updated
	failed    bool   // the new pods do not start in time
	waiting   string // why it is not ready
	reason    string // why an image of its pods cannot be pulled; "" otherwise
}

// readWorkload reads the status that Kubernetes wrote.
func readWorkload(o *unstructured.Unstructured) workload {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, fields...)
		return n
	}
	replicas, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		replicas = 1
	}
	seen := number("status", "observedGeneration") >= o.GetGeneration()
	updated, ready := number("status", "updatedReplicas"), number("status", "readyReplicas")
	pods := number("status", "replicas")
	w := workload{kind: o.GetKind(), available: ready > 0, ready: seen && updated >= replicas && ready >= replicas && pods == replicas}
	w.rolling = !seen || updated < replicas || pods > replicas
	if !w.ready {
		w.waiting = fmt.Sprintf("%s %s: %d of %d replicas are updated, %d are ready", w.kind, o.GetName(), updated, replicas, ready)
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["type"] == string(apps.DeploymentProgressing) && m["status"] == "False" {
			w.failed = true
			w.waiting += fmt.Sprint(": ", m["message"])
		}
	}
	return w
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
	return workload{kind: s.controllerKind(), waiting: "the " + s.controllerKind() + " " + v1beta1.ControllerName + " to be made"}
}

// troubled adds why a pod of the controller does not start, if its image cannot be pulled or it takes too long.
func (s *situation) troubled(w workload) workload {
	if w.ready {
		return w
	}
	for _, p := range s.controllerPods {
		if w.reason = rollout.PullTrouble(p); w.reason != "" && p.DeletionTimestamp == nil {
			w.waiting += described(p)
			break
		}
	}
	if w.kind != string(v1beta1.AsStatefulSet) {
		return w // a Deployment reports that in its status
	}
	if p, since := s.lateSince(); p != nil && s.now.Sub(since) >= startingLasts {
		if w.failed = true; w.reason == "" {
			w.waiting += described(p)
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
	if w.ready || w.failed || w.kind != string(v1beta1.AsStatefulSet) {
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
		if w.available {
			return true
		}
	}
	return false
}
