package apply

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/kube"
)

// ReasonStranger is the reason of the event about an object that has our labels and was not created here.
const ReasonStranger = "NotMadeByHoldfast"

// TellOfStranger returns a Config.Stranger that records an event about the object.
func TellOfStranger(client kubernetes.Interface) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, o *unstructured.Unstructured) error {
		message := fmt.Sprintf("this %s has the label %s=%s and was not created by Holdfast, so it is left alone; it may be a copy of one that was: "+
			"remove that label", o.GetKind(), ManagedByLabel, FieldManager)
		if len(o.GetOwnerReferences()) > 0 {
			message += ", and its ownerReferences, or Kubernetes deletes it with its owner"
		}
		return kube.RecordOnce(ctx, client, FieldManager, kube.Event{
			About: o, Kind: o.GroupVersionKind(), Type: core.EventTypeWarning, Reason: ReasonStranger, Message: message,
		})
	}
}

// reportStranger reports an object that has our labels and is not touched.
func (s *Set) reportStranger(ctx context.Context, o *unstructured.Unstructured) {
	s.mu.Lock()
	reported := s.strangers[o.GetUID()]
	s.strangers[o.GetUID()] = true
	s.mu.Unlock()
	if reported {
		return
	}
	s.Log.Warn("an object has the labels of Holdfast but was not created by it, and is left alone", "object", RefOf(o).String(), "namespace", o.GetNamespace())
	if s.Stranger == nil {
		return
	}
	if err := s.Stranger(ctx, o); err != nil {
		s.Log.Warn("the event could not be written", "object", RefOf(o).String(), "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.strangers, o.GetUID())
	}
}
