package kube

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Writer writes finalizers and status of objects of one kind, whose status type is S, and remembers what it wrote. A
// write fails with a conflict if another client has written to the object since it was read.
type Writer[T copied[T], S any] struct {
	Written[T]
	// Client returns the client for a namespace, which is empty for cluster-scoped kinds.
	Client func(namespace string) Client[T]
	Status func(T) *S
	// Manager is the field manager.
	Manager string
}

type copied[T any] interface {
	metav1.Object
	DeepCopy() T
}

// Client is the part of a typed client that a Writer needs.
type Client[T any] interface {
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}

// AddFinalizer returns the object with the finalizer, and writes only if it is missing.
func (w *Writer[T, S]) AddFinalizer(ctx context.Context, o T, finalizer string) (T, error) {
	if slices.Contains(o.GetFinalizers(), finalizer) {
		return o, nil
	}
	return w.setFinalizers(ctx, o, append(slices.Clone(o.GetFinalizers()), finalizer))
}

// RemoveFinalizer removes a finalizer from an object and keeps those of other controllers.
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

// WriteStatus writes the status if it differs from that of the object, and returns the object as stored. It does not
// modify o.
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

// RemoveFinalizer removes a finalizer without a Writer, and returns whether the object had it. It fails with a conflict
// if another client has written to the object since it was read.
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
	written, err := MergePatch(ctx, patch, o.GetName(), map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}}, manager)
	if err != nil {
		return o, fmt.Errorf("writing the finalizers of %s: %w", keyOf(o), err)
	}
	return written, nil
}

// IgnoreNotFound returns nil for a NotFound error, for objects that are to be deleted or may have been deleted
// concurrently.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreGone returns nil also for a conflict, for objects that may have changed or been replaced concurrently.
func IgnoreGone(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return IgnoreNotFound(err)
}

// DeleteExactly deletes an object that was read before. If it is gone, or another has its name, that is no error.
func DeleteExactly(ctx context.Context, remove func(context.Context, string, metav1.DeleteOptions) error, o metav1.Object) error {
	if err := IgnoreGone(remove(ctx, o.GetName(), *metav1.NewPreconditionDeleteOptions(string(o.GetUID())))); err != nil {
		kind := reflect.TypeOf(o).Elem().Name() // typed objects that were read name none
		return fmt.Errorf("deleting %s %s: %w", kind, keyOf(o), err)
	}
	return nil
}
