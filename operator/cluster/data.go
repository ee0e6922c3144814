package cluster

import (
	"context"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// allThere implements Definitions for a process that reconciles no definitions.
type allThere struct{}

func (allThere) Whole(string) bool { return true }
func (allThere) Returning() bool   { return false }

// countStored counts Volumes and Snapshots. While their kind is being deleted or missing, the counts of the status apply:
// the data is still on the disks.
func (r *Controller) countStored(c *v1beta1.StorageCluster, volumes, snapshots int) (int, int) {
	if !r.Kinds.Whole("volumes") {
		volumes = max(volumes, int(c.Status.Volumes))
	}
	if !r.Kinds.Whole("snapshots") {
		snapshots = max(snapshots, int(c.Status.Snapshots))
	}
	return volumes, snapshots
}

// bound counts the objects of Kubernetes that stand for volumes of Holdfast. They outlive Volumes.
type bound struct{ volumes, contents int }

// countBound reads from the API server, since it runs only while a StorageCluster is being deleted. It leaves out objects
// that are being deleted: they only wait for finalizers that the removal removes.
func (r *Controller) countBound(ctx context.Context) (n bound, err error) {
	err = eachOf(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kubernetes.CoreV1().PersistentVolumes().List(ctx, o)
	}, func(o runtime.Object) {
		if v, is := o.(*core.PersistentVolume); is && v.DeletionTimestamp == nil && r.isOurs(v) {
			n.volumes++
		}
	})
	if err != nil || !r.Owned.Has(snapshotClassKind) {
		return n, err
	}
	kind := schema.GroupVersionResource{Group: snapshotClassKind.Group, Version: "v1", Resource: "volumesnapshotcontents"}
	err = eachOf(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Owned.Client.Resource(kind).List(ctx, o)
	}, func(o runtime.Object) {
		content, is := o.(*unstructured.Unstructured)
		if !is || content.GetDeletionTimestamp() != nil {
			return
		}
		if driver, _, _ := unstructured.NestedString(content.Object, "spec", "driver"); driver == r.Driver {
			n.contents++
		}
	})
	if apierrors.IsNotFound(err) {
		return n, nil
	}
	return n, err
}

func (r *Controller) isOurs(v *core.PersistentVolume) bool {
	return v.Spec.CSI != nil && v.Spec.CSI.Driver == r.Driver || v.Annotations[v1beta1.NFSServerAnnotation] != ""
}

func eachOf(ctx context.Context, list pager.ListPageFunc, visit func(runtime.Object)) error {
	all := pager.New(list)
	all.PageSize = 500
	return all.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		visit(o)
		return nil
	})
}
