package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

const fieldManager = "holdfast-fencing"

func (r *Controller) apply(ctx context.Context, o observed, p plan) error {
	if p.fence != nil {
		if err := r.writeFence(ctx, o, p.fence); err != nil {
			return err
		}
	}
	// It fails if the StorageNode has changed: what is decided on an older condition may be wrong.
	if err := r.writeCondition(ctx, o, p.condition); err != nil {
		return err
	}
	for _, q := range p.requests {
		if err := r.writeRequest(ctx, o.name, q); err != nil {
			return err
		}
	}
	if p.unfence {
		if err := r.writeFence(ctx, o, nil); err != nil {
			return err
		}
	}
	errs := []error{r.detach(ctx, o, p)}
	for _, pod := range p.pods {
		errs = append(errs, r.deletePod(ctx, o, pod, p.gracefully))
	}
	return errors.Join(errs...)
}

// writeFence sets or removes spec.fence of the node: about the clients, or the fence, that were seen, and no others.
func (r *Controller) writeFence(ctx context.Context, o observed, f *v1beta1.Fence) error {
	is := map[string]any{"uid": o.storageNode.UID, "resourceVersion": o.storageNode.ResourceVersion}
	written, err := kube.MergePatch(ctx, r.Client.HoldfastV1beta1().StorageNodes().Patch, o.name, map[string]any{"metadata": is, "spec": map[string]any{"fence": f}}, fieldManager)
	if err != nil {
		return fmt.Errorf("writing spec.fence of StorageNode %s: %w", o.name, err)
	}
	r.Log.Warn("the fence of a node was changed", "node", o.name, "fence", written.Spec.Fence)
	*o.storageNode = *written // with the status as it is now, which the condition is written into
	return nil
}

func (r *Controller) writeCondition(ctx context.Context, o observed, c *metav1.Condition) error {
	if c == nil {
		return nil
	}
	was := o.conditionNow()
	n := o.storageNode.DeepCopy()
	if !meta.SetStatusCondition(&n.Status.Conditions, *c) {
		return nil
	}
	written, err := r.Client.HoldfastV1beta1().StorageNodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("writing the condition Fenced of StorageNode %s: %w", o.name, err)
	}
	*o.storageNode = *written
	if was != nil && was.Status == c.Status && was.Reason == c.Reason {
		return nil
	}
	kind := core.EventTypeWarning
	if c.Reason == v1beta1.ReasonReleased || c.Reason == v1beta1.ReasonWithdrawn {
		kind = core.EventTypeNormal
	}
	r.Log.Warn("the condition Fenced of a node has changed", "node", o.name, "status", c.Status, "reason", c.Reason, "message", c.Message)
	r.event(o, kind, c.Reason, c.Message)
	return nil
}

// event is one on the StorageNode and on the Node.
func (r *Controller) event(o observed, kind, reason, message string) {
	message = kube.Shorten(message, kube.LongestEvent)
	r.Events.Event(o.storageNode, kind, reason, message)
	if o.node != nil {
		r.Events.Event(o.node, kind, reason, message)
	}
}

// writeRequest changes the entry of one node in spec.blocklist of a pool, and leaves those of others.
func (r *Controller) writeRequest(ctx context.Context, node string, q request) error {
	err := kube.EditNode(ctx, r.Client, q.site.Name, fieldManager, func(s *v1beta1.StorageNode) (map[string]any, error) {
		if s.Unreadable() != nil {
			return nil, s.Unreadable() // entries that cannot be read would be lost
		}
		is := s.Spec.BlocklistOf(node)
		if ends := q.entry == nil || q.entry.Expire; ends && (is == nil || !slices.ContainsFunc(q.of, func(of metav1.MicroTime) bool { return of.Equal(&is.RequestedAt) })) {
			return nil, nil // there is none, or the node was shut out again since, by a leader whose clock may be behind
		}
		rest := slices.DeleteFunc(s.Spec.Blocklist, func(e v1beta1.BlocklistRequest) bool { return e.Node == node })
		if q.entry != nil {
			rest = append(rest, *q.entry)
		}
		return map[string]any{"blocklist": rest}, nil
	})
	if err != nil {
		return fmt.Errorf("writing spec.blocklist of StorageNode %s for node %s: %w", q.site.Name, node, err)
	}
	return nil
}

// fencedAnnotation, on a VolumeAttachment that Kubernetes deleted before the node was shut out, says when it was.
const fencedAnnotation = "holdfast.dev/fenced-at"

// detach deletes the VolumeAttachments of the node. One that is being deleted already was refused to external-attacher, which
// tries that less and less often, until the object changes.
func (r *Controller) detach(ctx context.Context, o observed, p plan) error {
	var errs []error
	attachments := r.Kubernetes.StorageV1().VolumeAttachments()
	for _, a := range p.attachments {
		var err error
		if a.DeletionTimestamp == nil {
			err = attachments.Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(a.UID))})
		} else {
			patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, a.UID, fencedAnnotation, o.now.UTC().Format(time.RFC3339))
			_, err = attachments.Patch(ctx, a.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
		}
		switch {
		case isGone(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("deleting VolumeAttachment %s: %w", a.Name, err))
		default:
			r.Log.Warn("deleted a VolumeAttachment of a node that is shut out", "node", o.name, "attachment", a.Name, "persistentVolume", *a.Spec.Source.PersistentVolumeName)
			r.event(o, core.EventTypeWarning, "Detached", fmt.Sprintf("volume %s is taken from node %s, which is shut out of its Ceph cluster", *a.Spec.Source.PersistentVolumeName, o.name))
		}
	}
	return errors.Join(errs...)
}

// deletePod deletes a pod at once, unless there is a kubelet to end it.
func (r *Controller) deletePod(ctx context.Context, o observed, pod *core.Pod, gracefully bool) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if !gracefully {
		options.GracePeriodSeconds = new(int64)
	}
	err := r.Kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting pod %s/%s of node %s: %w", pod.Namespace, pod.Name, o.name, err)
	}
	r.Log.Warn("deleted a pod of a node that is shut out", "node", o.name, "pod", pod.Namespace+"/"+pod.Name)
	r.Events.Event(pod, core.EventTypeWarning, v1beta1.ReasonFenced, fmt.Sprintf(
		"node %s is shut out of the Ceph clusters in which the pod has volumes, so the pod is deleted and can be started elsewhere", o.name))
	return nil
}

// isGone says whether what was to be deleted is, also by another of its name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
