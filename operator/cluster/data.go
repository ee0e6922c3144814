package cluster

import (
	"context"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/held"
)

// allThere implements Definitions for a process that reconciles no definitions.
type allThere struct{}

func (allThere) Whole(string) bool { return true }
func (allThere) Returning() bool   { return false }

// recount walks all Volumes and Snapshots if one has changed in a way that matters since the last time.
func (r *Controller) recount() {
	if r.counted.Swap(true) {
		return
	}
	volumes := kube.Cached(r.volumes.List)
	r.stored, r.unreachable = held.Count(volumes, kube.Cached(r.snapshots.List)), unreachable(volumes)
}

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
	err = kube.Each(ctx, r.Kubernetes.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, func(v *core.PersistentVolume) {
		if v.DeletionTimestamp == nil && r.isOurs(v) {
			n.volumes++
		}
	})
	if err != nil || !r.Owned.Has(snapshotClassKind) {
		return n, err
	}
	kind := schema.GroupVersionResource{Group: snapshotClassKind.Group, Version: "v1", Resource: "volumesnapshotcontents"}
	err = kube.Each(ctx, r.Owned.Client.Resource(kind).List, metav1.ListOptions{}, func(content *unstructured.Unstructured) {
		if driver, _, _ := unstructured.NestedString(content.Object, "spec", "driver"); driver == r.Driver && content.GetDeletionTimestamp() == nil {
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
