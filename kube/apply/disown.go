package apply

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/kube"
)

// OwnedBy returns all objects with an owner reference to uid that are not being deleted. They must not be modified.
func (s *Set) OwnedBy(uid types.UID) []*unstructured.Unstructured {
	return slices.DeleteFunc(s.watched(), func(o *unstructured.Unstructured) bool {
		isOwned := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
		return !isOwned || o.GetDeletionTimestamp() != nil
	})
}

// Disown removes the owner references of an object, so that it is not deleted with its owners. A deleted object is no
// error.
func (s *Set) Disown(ctx context.Context, o *unstructured.Unstructured) error {
	r := RefOf(o)
	w := s.watch(r.GroupKind)
	if w == nil {
		return nil
	}
	change := map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "ownerReferences": nil}}
	_, err := kube.MergePatch(ctx, w.client(s.Client, r.Namespace).Patch, r.Name, change, FieldManager)
	if kube.IgnoreGone(err) != nil {
		return fmt.Errorf("%s: its owner reference could not be removed: %w", r, err)
	}
	return nil
}
