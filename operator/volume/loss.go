package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// outOfServiceTaint is how an administrator declares that a node is shut down.
const outOfServiceTaint = "node.kubernetes.io/out-of-service"

func outOfService(n *core.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == outOfServiceTaint {
			return true
		}
	}
	return false
}

// look reconciles one node. A node whose agent is alive needs little: the agent corrects its own objects.
func (l *leader) look(ctx context.Context, node string) (again time.Duration, err error) {
	errs := []error{l.renewClaims(ctx, node)}
	if l.WhyDown(node) == "" {
		return 0, errors.Join(errs...)
	}
	if wait := l.InDoubt(node); wait > 0 {
		return wait, errors.Join(errs...)
	}
	p, there := l.plight(node)
	errs = append(errs, l.markNode(ctx, node, p))
	errs = append(errs, l.markAll(ctx, node, p, there))
	if err := errors.Join(errs...); err != nil || there {
		return 0, err
	}
	return 0, l.forget(ctx, node)
}

// markAll marks the objects of a silent node, and removes the finalizers of those that are on another one by now.
func (l *leader) markAll(ctx context.Context, node string, p plight, there bool) error {
	var errs []error
	var at map[string]string
	if !there {
		var err error
		if at, err = l.moved(ctx, node); err != nil {
			return err
		}
	}
	for _, v := range l.VolumesOn(node) {
		errs = append(errs, l.applyToVolume(ctx, v, p, at[v.Status.PoolID]))
	}
	for _, s := range l.SnapshotsOn(node) {
		errs = append(errs, l.applyToSnapshot(ctx, s, p, at[s.Status.PoolID]))
	}
	return errors.Join(errs...)
}

// plight says what has become of a silent node, and whether its Node object is there. A server has none, and comes back:
// it is removed only when nothing is on it, and its StorageNode with it.
func (l *leader) plight(node string) (p plight, there bool) {
	heard := "has never renewed its Lease"
	if last := l.LastHeardOf(node); !last.IsZero() {
		heard = "last renewed its Lease at " + last.UTC().Format(time.RFC3339)
	}
	if server := v1beta1.ServerOf(node); server != "" {
		return plight{v1beta1.ReasonNodeDown, fmt.Sprintf("the agent of NFS server %s %s", server, heard)}, true
	}
	n, err := l.nodes.Get(node)
	switch {
	case err != nil: // the cache has no other error than that it is not there
		return plight{v1beta1.ReasonNodeGone, fmt.Sprintf("node %s was deleted; its agent %s", node, heard)}, false
	case outOfService(n):
		return plight{v1beta1.ReasonNodeGone, fmt.Sprintf("node %s has the taint %s; its agent %s", node, outOfServiceTaint, heard)}, true
	}
	return plight{v1beta1.ReasonNodeDown, fmt.Sprintf("the agent of node %s %s", node, heard)}, true
}

func (l *leader) markNode(ctx context.Context, node string, p plight) error {
	n := l.storageNode(node)
	if n == nil || n.Unreadable() != nil || p.marked(n.Status.Conditions) {
		return nil //nolint:nilerr // an unreadable object is left alone, and reported by its agent
	}
	n = n.DeepCopy()
	p.mark(&n.Status.Conditions, n.Generation)
	if _, err := l.Client.HoldfastV1beta1().StorageNodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: cluster.FieldManager}); err != nil {
		return kube.IgnoreNotFound(err)
	}
	l.Log.Warn("a node is down", "node", node, "reason", p.reason, "message", p.message())
	l.warnf(n, p.reason, "%s", p.message())
	return nil
}

func (l *leader) applyToVolume(ctx context.Context, v *v1beta1.Volume, p plight, home string) error {
	switch p.planVolume(v, home) {
	case handOver:
		return l.handOverVolume(ctx, v, home)
	case report:
		return l.reportUnreadable(ctx, v)
	case giveUp:
		return l.giveUp(ctx, v, p)
	case mark:
		return l.markVolume(ctx, v.DeepCopy(), p)
	}
	return nil
}

func (l *leader) markVolume(ctx context.Context, v *v1beta1.Volume, p plight) error {
	unreachable := p.markStored(v.Status.CreationTime != nil, v.Generation, &v.Status.Phase, &v.Status.Conditions)
	_, err := l.Client.HoldfastV1beta1().Volumes().UpdateStatus(ctx, v, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	if err == nil && unreachable {
		l.warnf(v, p.reason, "%s", p.message())
	}
	return kube.IgnoreNotFound(err)
}

// giveUp gives a volume up, and keeps of it what its claim needs to have a successor.
func (l *leader) giveUp(ctx context.Context, v *v1beta1.Volume, p plight) error {
	switch {
	case v.DeletionTimestamp == nil:
		kept, err := l.keepClaim(ctx, v)
		if err != nil {
			return kube.IgnoreNotFound(err)
		}
		v = kept
		l.recordLoss(v, p)
	case cluster.GivenUp(v):
		return nil
	}
	return l.GiveUpVolume(ctx, v, "its node is gone and onNodeLoss is Delete: "+p.cause)
}

// recordLoss says, on the volume and on its claim, that the content is given up: before it is, and again only after
// another has begun to lead.
func (l *leader) recordLoss(v *v1beta1.Volume, p plight) {
	if l.reported[v.UID] {
		return
	}
	l.reported[v.UID] = true
	const text = "the volume is given up because its node is gone and onNodeLoss is Delete: %s. Its claim is recreated and gets a new, empty volume"
	l.warnf(v, "VolumeGivenUp", text, p.cause)
	if claim := v.Spec.Labels[v1beta1.ClaimNameLabel]; claim != "" {
		l.warnf(&core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1beta1.ClaimNamespaceLabel],
		}, "VolumeGivenUp", text, p.cause)
	}
}

func (l *leader) applyToSnapshot(ctx context.Context, s *v1beta1.Snapshot, p plight, home string) error {
	switch p.planSnapshot(s, home) {
	case handOver:
		return l.HandOverSnapshot(ctx, s, home)
	case report:
		return l.reportUnreadable(ctx, s)
	case giveUp:
		return l.GiveUpSnapshot(ctx, s, "it was deleted while its node was gone")
	case mark:
		return l.markSnapshot(ctx, s.DeepCopy(), p)
	}
	return nil
}

func (l *leader) markSnapshot(ctx context.Context, s *v1beta1.Snapshot, p plight) error {
	p.markStored(s.Status.CreationTime != nil, s.Generation, &s.Status.Phase, &s.Status.Conditions)
	_, err := l.Client.HoldfastV1beta1().Snapshots().UpdateStatus(ctx, s, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	return kube.IgnoreNotFound(err)
}

// forget removes what is on record of a node whose Node object was deleted, when nothing of it is left to come back.
func (l *leader) forget(ctx context.Context, node string) error {
	n := l.storageNode(node)
	if n == nil || n.Unreadable() != nil || len(l.VolumesOn(node)) > 0 || len(l.SnapshotsOn(node)) > 0 || len(n.Spec.Discard) > 0 {
		return nil //nolint:nilerr // an unreadable object is left alone, and reported by its agent
	}
	exact := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}}
	if err := kube.IgnoreNotFound(l.Client.HoldfastV1beta1().StorageNodes().Delete(ctx, node, exact)); err != nil {
		return err
	}
	err := l.Kubernetes.CoordinationV1().Leases(l.Namespace).Delete(ctx, v1beta1.LeasePrefix+node, metav1.DeleteOptions{})
	return kube.IgnoreNotFound(err)
}

// reportUnreadable says of an object that cannot be decoded, and whose agent is silent, that it is left alone.
func (l *leader) reportUnreadable(ctx context.Context, o v1beta1.Object) error {
	written, err := l.unreadable.Report(ctx, l.Client, o, cluster.FieldManager)
	if written != nil {
		l.warnf(o, v1beta1.ReasonUnreadable, "%s", kube.UnreadableMessage(o))
	}
	return err
}
