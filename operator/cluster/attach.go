package cluster

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// releaseAttached removes the finalizers of external-attacher, once after its removal: it sets one on each
// PersistentVolume and VolumeAttachment, whose deletion would never finish without it.
func (r *Controller) releaseAttached(ctx context.Context, p plan) error {
	if p.attacherRuns {
		r.attachedReleased = false
	}
	if !p.releaseFinalizer || r.attachedReleased {
		return nil
	}
	if err := r.takeAttachersFinalizers(ctx); err != nil {
		return err
	}
	r.attachedReleased = true
	return nil
}

func (r *Controller) takeAttachersFinalizers(ctx context.Context) error {
	volumes := r.Kubernetes.CoreV1().PersistentVolumes()
	all, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		if pv := &all.Items[i]; pv.Spec.CSI != nil && pv.Spec.CSI.Driver == r.Driver {
			if err := takeFinalizer(ctx, r, volumes.Patch, "PersistentVolume", pv); err != nil {
				return err
			}
		}
	}
	attachments := r.Kubernetes.StorageV1().VolumeAttachments()
	attached, err := attachments.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range attached.Items {
		if a := &attached.Items[i]; a.Spec.Attacher == r.Driver {
			if err := takeFinalizer(ctx, r, attachments.Patch, "VolumeAttachment", a); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeFinalizer fails if another client has written to the object in between.
func takeFinalizer[T metav1.Object](ctx context.Context, r *Controller, patch kube.PatchFunc[T], kind string, o T) error {
	if _, err := kube.RemoveFinalizer(ctx, patch, o, attachersFinalizer(r.Driver), apply.FieldManager); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("the finalizer of external-attacher on %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}

// attachersFinalizer is the finalizer of external-attacher for a driver, whose name it writes without dots.
func attachersFinalizer(driver string) string {
	return "external-attacher/" + strings.ReplaceAll(driver, ".", "-")
}
