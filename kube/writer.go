package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Writer writes the finalizers and the status of the objects of one kind, of which S is the status, and remembers what
// it wrote. Each write fails with a conflict if another client has written to the object since it was read.
type Writer[T copied[T], S any] struct {
	Written[T]
	// Client returns the client of a namespace, which is empty for kinds without.
	Client func(namespace string) Client[T]
	Status func(T) *S
	// Manager is the field manager.
	Manager string
}

type copied[T any] interface {
	metav1.Object
	DeepCopy() T
}

// Client is what a Writer needs of a typed client.
type Client[T any] interface {
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

// AddFinalizer returns the object with the finalizer. One that has it already is not written.
func (w *Writer[T, S]) AddFinalizer(ctx context.Context, o T, finalizer string) (T, error) {
	if slices.Contains(o.GetFinalizers(), finalizer) {
		return o, nil
	}
	return w.setFinalizers(ctx, o, append(slices.Clone(o.GetFinalizers()), finalizer))
}

// RemoveFinalizer removes a finalizer from an object, and leaves those of others.
func (w *Writer[T, S]) RemoveFinalizer(ctx context.Context, o T, finalizer string) error {
	if !slices.Contains(o.GetFinalizers(), finalizer) {
		return nil
	}
	_, err := w.setFinalizers(ctx, o, without(o, finalizer))
	return err
}

func (w *Writer[T, S]) setFinalizers(ctx context.Context, o T, finalizers []string) (T, error) {
	written, err := patchFinalizers(ctx, w.Client(o.GetNamespace()).Patch, o, finalizers, w.Manager)
	if err == nil {
		w.Wrote(written)
	}
	return written, err
}

// WriteStatus writes a status that differs from that of the object, and returns the object as it is then, whose status is
// the old one if nothing was written. It does not change o.
func (w *Writer[T, S]) WriteStatus(ctx context.Context, o T, next S) (written T, changed bool, err error) {
	if equality.Semantic.DeepEqual(*w.Status(o), next) {
		return o, false, nil
	}
	o = o.DeepCopy()
	*w.Status(o) = next
	written, err = w.Client(o.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: w.Manager})
	if err != nil {
		return o, false, fmt.Errorf("writing the status of %s: %w", keyOf(o), err)
	}
	w.Wrote(written)
	return written, true, nil
}

// PatchFunc is the Patch of the client of one kind.
type PatchFunc[T any] func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)

// RemoveFinalizer removes a finalizer from an object whose last write is not remembered, and says whether it did. It
// fails with a conflict if another client has written to the object since it was read.
func RemoveFinalizer[T metav1.Object](ctx context.Context, patch PatchFunc[T], o T, finalizer, manager string) (removed bool, err error) {
	if !slices.Contains(o.GetFinalizers(), finalizer) {
		return false, nil
	}
	_, err = patchFinalizers(ctx, patch, o, without(o, finalizer), manager)
	return err == nil, err
}

func without(o metav1.Object, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer })
}

func patchFinalizers[T metav1.Object](ctx context.Context, patch PatchFunc[T], o T, finalizers []string, manager string) (T, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return o, err
	}
	written, err := patch(ctx, o.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return o, fmt.Errorf("writing the finalizers of %s: %w", keyOf(o), err)
	}
	return written, nil
}

// IgnoreNotFound is for objects that must be gone, or may have been deleted in between.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
