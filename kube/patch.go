package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// PatchFunc is the method Patch of a typed client.
type PatchFunc[T any] func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)

// MergePatch writes a change of an object. With its resource version in the metadata, it fails with a conflict if another
// client has written to the object since it was read; with its UID, if another object has its name.
func MergePatch[T any](ctx context.Context, patch PatchFunc[T], name string, change map[string]any, manager string, subresources ...string) (written T, err error) {
	data, err := json.Marshal(change)
	if err != nil {
		return written, err
	}
	return patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
}

// EditNode patches the spec of a StorageNode with what change returns for its newest state, unless that is nil. One that does
// not exist is left alone; one that goes in between is an error, since its successor may want the change.
func EditNode(ctx context.Context, client holdfast.Interface, name, manager string, change func(*v1beta1.StorageNode) (spec map[string]any, err error)) error {
	nodes := client.HoldfastV1beta1().StorageNodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return IgnoreNotFound(err)
		}
		spec, err := change(n)
		if err != nil || spec == nil {
			return err
		}
		_, err = MergePatch(ctx, nodes.Patch, name, map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": spec}, manager)
		return err
	})
}
