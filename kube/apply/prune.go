package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/kube"
)

// Prune deletes all objects that have the instance label, were created by this Set, and for which keep returns false.
func (s *Set) Prune(ctx context.Context, keep func(*unstructured.Unstructured) bool) Outcome {
	var out Outcome
	for _, o := range s.labelled() {
		if keep(o) || o.GetDeletionTimestamp() != nil {
			continue
		}
		r := RefOf(o)
		if !s.inventory.has(o) {
			s.reportStranger(ctx, o)
			continue
		}
		if err := s.Delete(ctx, o); err != nil {
			out.Failures = append(out.Failures, Failure{r, err})
			continue
		}
		s.Log.Info("deleted, since the spec no longer needs it", "object", r.String())
		out.Changed = append(out.Changed, r)
	}
	return out
}

// Delete deletes exactly the given object if this Set created it. A deleted object is no error.
func (s *Set) Delete(ctx context.Context, o *unstructured.Unstructured) error {
	r := RefOf(o)
	w := s.watch(r.GroupKind)
	if w == nil {
		return nil
	}
	if !s.inventory.has(o) {
		s.reportStranger(ctx, o)
		return nil
	}
	uid, background := o.GetUID(), metav1.DeletePropagationBackground
	err := w.client(s.Client, r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
	})
	s.forget(r, nil)
	return kube.IgnoreGone(err) // another object may have its name now
}

// Keeping returns a keep function for Prune that keeps the desired objects.
func Keeping(desired []*unstructured.Unstructured) func(*unstructured.Unstructured) bool {
	names := map[Ref]bool{}
	for _, o := range desired {
		names[RefOf(o)] = true
	}
	return func(o *unstructured.Unstructured) bool { return names[RefOf(o)] }
}
