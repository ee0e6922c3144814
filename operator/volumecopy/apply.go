package volumecopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

func (r *Controller) apply(ctx context.Context, o observed, p plan) (time.Duration, error) {
	var errs []error
	for _, object := range p.remove {
		errs = append(errs, r.remove(ctx, object))
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if p.giveBack != "" {
		r.slots.giveBack(o.target.UID, p.giveBack)
	}
	if p.begin {
		return r.begin(ctx, o, p)
	}
	for _, role := range p.bind {
		if err := r.bind(ctx, o, role); err != nil {
			return 0, err
		}
	}
	if p.start > 0 { // before the status: an attempt that is in the status and has no pod is made again
		if err := r.start(ctx, o, p.start); err != nil {
			return 0, err
		}
	}
	return p.again, r.write(ctx, o, p)
}

// write writes the status. It fails with a conflict if the Volume has changed since it was read.
func (r *Controller) write(ctx context.Context, o observed, p plan) error {
	if p.copy == nil {
		return nil
	}
	v := o.target.DeepCopy()
	v.Status.Copy = p.copy
	meta.SetStatusCondition(&v.Status.Conditions, *p.condition)
	v.Status.SetColumns()
	if _, err := r.Storage.Client.HoldfastV1beta1().Volumes().UpdateStatus(ctx, v, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return kube.IgnoreNotFound(err)
	}
	if e := p.event; e != nil {
		r.Storage.Log.Info("copying a volume", "volume", v.Name, "claim", v.Spec.ClaimRef.String(), "reason", e.reason, "message", e.message)
		r.event(v, e)
	}
	return nil
}

// event is one on the Volume and on its claim.
func (r *Controller) event(v *v1beta1.Volume, e *event) {
	message := kube.Shorten(e.message, kube.LongestEvent)
	r.Events.Event(v, e.kind, e.reason, message)
	if claim := v.Spec.Labels[v1beta1.ClaimNameLabel]; claim != "" {
		r.Events.Event(&core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1beta1.ClaimNamespaceLabel],
		}, e.kind, e.reason, message)
	}
}

// beginTime is how long a pass waits for the temporary source: an agent makes it on, and the watch brings the next pass.
const beginTime = 2 * time.Second

// begin makes the temporary source beside the source, by the backend, so that its size is promised there like every other.
func (r *Controller) begin(ctx context.Context, o observed, p plan) (time.Duration, error) {
	ctx2, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	_, err := r.makeSource(ctx2, o)
	now := o.copied()
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil:
		return soon, nil
	case errors.Is(err, backend.ErrBusy):
		p.wait(o, now, "its source is being copied in its pool")
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrExhausted):
		const cannot = "its source cannot be copied in its pool now: "
		if len(o.own.pods) == 0 {
			r.slots.giveBack(o.target.UID, cannot+err.Error())
		}
		if strings.Contains(now.Message, cannot) { // the errors have times and numbers, which change all the time
			return p.again, nil
		}
		p.wait(o, now, cannot+err.Error())
	case backend.FindCode(err) != "":
		p.giveUp(o, now, "its source could not be copied in its pool: "+err.Error())
	default:
		return 0, err
	}
	return p.again, r.write(ctx, o, p)
}

func (r *Controller) makeSource(ctx context.Context, o observed) (*backend.Volume, error) {
	ref := o.target.Spec.SourceRef
	spec := backend.VolumeSpec{
		Name: r.sourceName(o.target.UID), Mode: backend.Mode(o.target.Status.Mode),
		Labels: map[string]string{v1beta1.CopyLabel: o.target.Name, v1beta1.CopyUIDLabel: string(o.target.UID)},
	}
	if o.own.source != nil {
		spec.Name = o.own.source.Name
	}
	node, pool, err := r.locate(ctx, ref)
	if err != nil {
		return nil, err
	}
	spec.Pool = cmp.Or(v1beta1.CephPoolOf(node), pool) // the temporary one is made in the pool of the source and nowhere else
	if ref.Kind == v1beta1.SourceSnapshot {
		return r.Storage.Restore(ctx, backend.ID(ref.Name), spec)
	}
	return r.Storage.Clone(ctx, backend.ID(ref.Name), spec)
}

// locate returns where a source is.
func (r *Controller) locate(ctx context.Context, ref *v1beta1.SourceReference) (node, pool string, err error) {
	if ref.Kind == v1beta1.SourceSnapshot {
		s, err := r.Storage.GetSnapshot(ctx, backend.ID(ref.Name))
		if err != nil {
			return "", "", err
		}
		return s.Node, s.Pool, nil
	}
	v, err := r.Storage.Get(ctx, backend.ID(ref.Name))
	if err != nil {
		return "", "", err
	}
	return v.Node, v.Pool, nil
}

// bind makes PersistentVolume and claim of a role.
func (r *Controller) bind(ctx context.Context, o observed, role role) error {
	v := o.target
	if role == source {
		v = o.own.source
	}
	pv, err := persistentOf(r.Storage.Namespace, o.target, v, role)
	if err != nil {
		return err
	}
	claim := claimOf(o.target, pv)
	if o.own.persistent[role] == nil {
		if _, err := r.Storage.Kubernetes.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("creating PersistentVolume %s for the copy of volume %s: %w", pv.Name, o.target.Name, err)
		}
	}
	if o.own.claims[role] == nil {
		if _, err := r.Storage.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("creating claim %s for the copy of volume %s: %w", claim.Name, o.target.Name, err)
		}
	}
	return nil
}

func (r *Controller) start(ctx context.Context, o observed, attempt int32) error {
	name, secrets, err := r.Image(ctx)
	if err != nil {
		return err
	}
	pod := podOf(r.Storage.Namespace, o.target, o.own.source, attempt, name)
	pod.Spec.ImagePullSecrets = secrets
	if _, err := r.Storage.Kubernetes.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s for the copy of volume %s: %w", pod.Name, o.target.Name, err)
	}
	return nil
}

// remove deletes an object as it was seen.
func (r *Controller) remove(ctx context.Context, o metav1.Object) error {
	objects := r.Storage.Kubernetes.CoreV1()
	v, isSource := o.(*v1beta1.Volume)
	switch {
	case isSource && v.Labels[v1beta1.AdoptedLabel] != "" && v.DeletionRequested() && v.DeletionTimestamp != nil: // it ends when its agent wants it to
		return nil
	case isSource:
		return r.removeSource(ctx, v)
	case o.GetDeletionTimestamp() != nil:
		return nil
	}
	switch o.(type) {
	case *core.Pod:
		return kube.DeleteExactly(ctx, objects.Pods(o.GetNamespace()).Delete, o)
	case *core.PersistentVolumeClaim:
		return kube.DeleteExactly(ctx, objects.PersistentVolumeClaims(o.GetNamespace()).Delete, o)
	}
	return kube.DeleteExactly(ctx, objects.PersistentVolumes().Delete, o)
}

func (r *Controller) removeSource(ctx context.Context, v *v1beta1.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	err := r.Storage.Delete(ctx, backend.ID(v.Name))
	if errors.Is(err, backend.ErrBusy) || errors.Is(err, backend.ErrUnavailable) { // the request is there, and the watch shows the end
		return nil
	}
	return err
}
