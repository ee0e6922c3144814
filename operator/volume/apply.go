package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

func (l *leader) reconcileNode(ctx context.Context, name string) (time.Duration, error) {
	o, err := l.observeNode(ctx, name)
	if err != nil {
		return 0, err
	}
	p := planNode(o)
	return p.again, l.applyNode(ctx, p)
}

// applyNode carries on with the other objects if one fails.
func (l *leader) applyNode(ctx context.Context, p nodePlan) error {
	errs := []error{p.err}
	for _, r := range p.renewals {
		errs = append(errs, l.renewClaim(ctx, r))
	}
	if p.node != nil {
		errs = append(errs, l.markNode(ctx, p.node, p.outage))
	}
	for _, s := range p.volumes {
		errs = append(errs, kube.IgnoreNotFound(l.applyToVolume(ctx, s)))
	}
	for _, s := range p.snapshots {
		errs = append(errs, kube.IgnoreNotFound(l.applyToSnapshot(ctx, s)))
	}
	if err := errors.Join(errs...); err != nil || p.forget == nil {
		return err
	}
	return l.forget(ctx, p.forget)
}

func (l *leader) markNode(ctx context.Context, n *v1beta1.StorageNode, p outage) error {
	if _, err := l.Client.HoldfastV1beta1().StorageNodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: cluster.FieldManager}); err != nil {
		return kube.IgnoreNotFound(err)
	}
	l.Log.Warn("a node is down", "node", n.Name, "reason", p.reason, "message", p.message())
	l.record(event{n, p.reason, p.message()})
	return nil
}

func (l *leader) applyToVolume(ctx context.Context, s step[*v1beta1.Volume]) error {
	v := s.object
	switch s.action {
	case report:
		return l.reportUnreadable(ctx, v, s.events)
	case handOver:
		l.recordLoss(v, s.events)
		return l.HandOverVolume(ctx, v, s.to.Name)
	case giveUp:
		if s.claim != nil {
			var err error
			if v, err = l.keepClaim(ctx, v, s.claim); err != nil {
				return err
			}
		}
		l.recordLoss(v, s.events)
		return l.GiveUpVolume(ctx, v, s.reason)
	case mark:
		if _, err := l.Client.HoldfastV1beta1().Volumes().UpdateStatus(ctx, v, metav1.UpdateOptions{FieldManager: cluster.FieldManager}); err != nil {
			return err
		}
		l.record(s.events...)
	}
	return nil
}

// recordLoss writes the events of a volume that was lost or has moved, once while this process leads.
func (l *leader) recordLoss(v *v1beta1.Volume, events []event) {
	l.record(events...)
	reported, _ := l.reported.LoadOrStore(v.Spec.Node, map[types.UID]bool{})
	reported.(map[types.UID]bool)[v.UID] = true
}

func (l *leader) applyToSnapshot(ctx context.Context, s step[*v1beta1.Snapshot]) error {
	switch s.action {
	case report:
		return l.reportUnreadable(ctx, s.object, s.events)
	case handOver:
		return l.HandOverSnapshot(ctx, s.object, s.to.Name)
	case giveUp:
		return l.GiveUpSnapshot(ctx, s.object, s.reason)
	case mark:
		_, err := l.Client.HoldfastV1beta1().Snapshots().UpdateStatus(ctx, s.object, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
		return err
	}
	return nil
}

// reportUnreadable says of an object that cannot be decoded, and whose agent is silent, that it is left alone.
func (l *leader) reportUnreadable(ctx context.Context, o v1beta1.Object, events []event) error {
	written, err := l.unreadable.Report(ctx, l.Client, o, cluster.FieldManager)
	if written != nil {
		l.record(events...)
	}
	return err
}

// keepClaim writes on a volume the claim to recreate.
func (l *leader) keepClaim(ctx context.Context, v *v1beta1.Volume, claim *core.PersistentVolumeClaim) (*v1beta1.Volume, error) {
	data, err := json.Marshal(claim)
	if err != nil {
		return nil, err
	}
	return l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{renewalAnnotation: string(data)},
		"finalizers":  append(slices.Clone(v.Finalizers), renewalFinalizer),
	}})
}

// renewClaim recreates a claim at once if its deletion has no finalizer to wait for.
func (l *leader) renewClaim(ctx context.Context, r renewal) (err error) {
	v := r.volume
	defer func() {
		if err != nil {
			err = fmt.Errorf("the claim %s of volume %s, which was given up: %w", v.Spec.ClaimRef, v.Name, err)
		}
	}()
	if claim := r.delete; claim != nil {
		if err := l.mayDelete(ctx, v, claim); err != nil {
			return err
		}
		if err := kube.DeleteExactly(ctx, l.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete, claim); err != nil {
			return err
		}
		now, err := l.liveClaim(ctx, v)
		if err != nil {
			return err
		}
		if r, err = planRenewal(v, now); err != nil {
			return err
		}
	}
	if r.create != nil {
		if err := l.createClaim(ctx, v, r.create); err != nil {
			return err
		}
	}
	if !r.finish {
		return nil
	}
	_, err = l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{renewalAnnotation: nil},
		"finalizers":  slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == renewalFinalizer }),
	}})
	return kube.IgnoreNotFound(err)
}

// mayDelete reads whether a claim is bound to the volume. One whose PersistentVolume is gone has no data.
func (l *leader) mayDelete(ctx context.Context, v *v1beta1.Volume, claim *core.PersistentVolumeClaim) error {
	pv, err := kube.Live(ctx, l.Kubernetes.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName)
	if err != nil || pv == nil {
		return err
	}
	return isBound(v, claim, pv)
}

// createClaim creates the new claim, unless another controller has, such as that of its StatefulSet, or its namespace is
// being deleted.
func (l *leader) createClaim(ctx context.Context, v *v1beta1.Volume, claim *core.PersistentVolumeClaim) error {
	created, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{FieldManager: cluster.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, core.NamespaceTerminatingCause):
		return nil
	case err != nil:
		return err
	}
	l.Log.Warn("recreated a claim whose volume was given up", "claim", v.Spec.ClaimRef.String(), "volume", v.Name, "node", v.Spec.Node)
	l.record(event{created, "VolumeReplaced", fmt.Sprintf(
		"volume %s was given up because its node %s is gone and onNodeLoss is Delete; this claim was recreated and gets a new, empty volume", v.Name, v.Spec.Node)})
	return nil
}

func (l *leader) forget(ctx context.Context, n *v1beta1.StorageNode) error {
	exact := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}}
	if err := kube.IgnoreNotFound(l.Client.HoldfastV1beta1().StorageNodes().Delete(ctx, n.Name, exact)); err != nil {
		return err
	}
	err := l.Kubernetes.CoordinationV1().Leases(l.Namespace).Delete(ctx, v1beta1.LeasePrefix+n.Name, metav1.DeleteOptions{})
	return kube.IgnoreNotFound(err)
}

func (l *leader) reconcileHealth(ctx context.Context, name string) (time.Duration, error) {
	v, err := l.volumes.Get(name)
	if err != nil {
		delete(l.faults, name)
		return 0, nil //nolint:nilerr // the only error of a cache is that there is none
	}
	if isNews(v, l.faults[name], time.Now()) {
		if err := l.warnUsers(ctx, v); err != nil {
			return 0, fmt.Errorf("the users of volume %s could not get an event about its fault: %w", name, err)
		}
	}
	l.faults[name] = faultOf(v)
	return 0, nil
}

// warnUsers does nothing for a claim that is gone, or has another volume.
func (l *leader) warnUsers(ctx context.Context, v *v1beta1.Volume) error {
	of := v.Spec.ClaimRef
	claim, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	if v.Labels[v1beta1.AdoptedLabel] != "" { // an agent has written whose it is
		pv, err := l.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil || isBound(v, claim, pv) != nil {
			return kube.IgnoreNotFound(err)
		}
	}
	pods, err := l.Kubernetes.CoreV1().Pods(of.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	l.record(planHealth(v, claim, pods.Items)...)
	return nil
}

func (l *leader) reconcileWaiting(ctx context.Context, _ string) (time.Duration, error) {
	if left := surveyEvery - time.Since(l.surveyed); left > 0 {
		return left, nil
	}
	p := planWaiting(l.observeWaiting(ctx))
	l.record(p.events...)
	l.reminded, l.surveyed = p.reminded, time.Now()
	return p.again, nil
}

func (l *leader) reconcileGarbage(ctx context.Context, _ string) (time.Duration, error) {
	unfinished, now := l.FinishDeletions(ctx, l.GarbageEvery), time.Now()
	candidates, unread := l.observeGarbage(ctx, now)
	return l.GarbageEvery, errors.Join(unfinished, unread, l.applyGarbage(ctx, planGarbage(candidates, now, l.GarbageAge)))
}

// applyGarbage leaves a volume that has changed to the next pass.
func (l *leader) applyGarbage(ctx context.Context, p garbagePlan) error {
	var errs []error
	for _, v := range p.bind {
		_, err := l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{"annotations": map[string]any{boundAnnotation: "true"}}})
		errs = append(errs, kube.IgnoreGone(err))
	}
	for _, v := range p.remove {
		l.Log.Info("removing a volume that was requested and never used: its claim is gone", "volume", v.Name, "claim", v.Spec.ClaimRef.String(), "node", v.Spec.Node)
		errs = append(errs, kube.IgnoreGone(l.RemoveUnused(ctx, v, "it was requested and never used: its claim "+v.Spec.ClaimRef.String()+" is gone")))
	}
	return errors.Join(errs...)
}

func (l *leader) record(events ...event) {
	for _, e := range events {
		l.Events.Event(e.about, core.EventTypeWarning, e.reason, e.message)
	}
}
