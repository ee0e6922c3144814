package storagecluster

import (
	"fmt"

	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// workload is the controller's own Deployment or StatefulSet.
type workload struct {
	kind      string
	available bool   // a pod serves
	ready     bool   // all pods are as asked for, and serve
	failed    bool   // the new pods do not start in time
	waiting   string // why it is not ready
	reason    string // for which an image of its pods does not come; "" otherwise
}

// readWorkload looks at the status that Kubernetes wrote.
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
	w := workload{kind: o.GetKind(), available: ready > 0, ready: seen && updated >= replicas && ready >= replicas && number("status", "replicas") == replicas}
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

// controllerKind is the kind that the spec asks for.
func (s *situation) controllerKind() string {
	if strategy := s.cluster.Spec.CSI.DeploymentStrategy; strategy != "" {
		return string(strategy)
	}
	return "Deployment"
}

// controller is the one that the spec asks for.
func (s *situation) controller() workload {
	for _, w := range s.controllers {
		if w.kind == s.controllerKind() {
			return s.troubled(w)
		}
	}
	return workload{kind: s.controllerKind(), waiting: "the " + s.controllerKind() + " " + controllerName + " to be made"}
}

// troubled adds what keeps a pod of the controller from starting, if it is an image.
func (s *situation) troubled(w workload) workload {
	if w.ready {
		return w
	}
	for _, p := range s.controllerPods {
		if w.reason = rollout.PullTrouble(p); w.reason != "" && p.DeletionTimestamp == nil {
			why, _ := rollout.Trouble(p)
			w.waiting += fmt.Sprintf("; pod %s: %s", p.Name, why)
			return w
		}
	}
	return w
}

// controllerAvailable says whether any of them serves.
func (s *situation) controllerAvailable() bool {
	for _, w := range s.controllers {
		if w.available {
			return true
		}
	}
	return false
}
