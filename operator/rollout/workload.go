package rollout

import (
	"fmt"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Workload is the state of a Deployment or StatefulSet of Holdfast, as Kubernetes wrote it.
type Workload struct {
	Image     v1beta1.Image
	Available bool   // a pod serves
	Ready     bool   // all pods are updated and ready
	Rolling   bool   // a pod is to be replaced by one that is updated
	Failed    bool   // a Deployment reports that its pods do not start in time
	Waiting   string // why it is not ready
}

// ReadWorkload reads the fields that Deployments and StatefulSets have in common.
func ReadWorkload(o *unstructured.Unstructured) (w Workload) {
	d := apply.Typed[apps.Deployment](o)
	if d == nil {
		return Workload{Waiting: fmt.Sprintf("%s %s, which cannot be read", o.GetKind(), o.GetName())}
	}
	s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
	seen := s.ObservedGeneration >= d.Generation
	w.Image, w.Available = render.ImageOf(&d.Spec.Template.Spec), s.ReadyReplicas > 0
	w.Ready = seen && s.UpdatedReplicas >= want && s.ReadyReplicas >= want && s.Replicas == want
	w.Rolling = !seen || s.UpdatedReplicas < want || s.Replicas > want
	if !w.Ready {
		w.Waiting = fmt.Sprintf("%s %s: %d of %d replicas are updated, %d are ready, %d are there",
			o.GetKind(), o.GetName(), s.UpdatedReplicas, want, s.ReadyReplicas, s.Replicas)
	}
	for _, c := range s.Conditions {
		if c.Type == apps.DeploymentProgressing && c.Status == core.ConditionFalse {
			w.Failed = true
			if !w.Ready {
				w.Waiting += ": " + c.Message
			}
		}
	}
	return w
}
