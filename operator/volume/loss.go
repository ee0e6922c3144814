package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
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

// plight is what has become of a node whose agent is silent.
type plight struct {
	reason string // NodeDown or NodeGone
	cause  string
}

func (p plight) gone() bool { return p.reason == v1.ReasonNodeGone }

// message is for what is kept.
func (p plight) message() string {
	if p.gone() {
		return p.cause + ". What it has comes back with it"
	}
	return p.cause
}

// look sees to one node. A node whose agent lives needs little: the agent puts its own objects right.
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
	errs = append(errs, l.seeToAll(ctx, node, p, there))
	if err := errors.Join(errs...); err != nil || there {
		return 0, err
	}
	return 0, l.forget(ctx, node)
}

// seeToAll sees to what is on a silent node, and lets go of what is on another one by now.
func (l *leader) seeToAll(ctx context.Context, node string, p plight, there bool) error {
	var errs []error
	var at map[string]string
	if !there {
		var err error
		if at, err = l.moved(ctx, node); err != nil {
			return err
		}
	}
	for _, v := range l.VolumesOn(node) {
		if home := at[v.Status.PoolID]; home != "" {
			errs = append(errs, l.handOverVolume(ctx, v, home))
		} else {
			errs = append(errs, l.seeToVolume(ctx, v, p))
		}
	}
	for _, s := range l.SnapshotsOn(node) {
		if home := at[s.Status.PoolID]; home != "" {
			errs = append(errs, l.HandOverSnapshot(ctx, s, home))
		} else {
			errs = append(errs, l.seeToSnapshot(ctx, s, p))
		}
	}
	return errors.Join(errs...)
}

// plight says what has become of a silent node, and whether its Node object is there. A server has none, and comes back:
// it is removed only when nothing is on it, and its StorageNode with it.
func (l *leader) plight(node string) (p plight, there bool) {
	heard := "has never been heard of"
	if last := l.LastHeardOf(node); !last.IsZero() {
		heard = "was last heard of at " + last.UTC().Format(time.RFC3339)
	}
	if server := v1.ServerOf(node); server != "" {
		return plight{v1.ReasonNodeDown, fmt.Sprintf("the agent of NFS server %s %s", server, heard)}, true
	}
	n, err := l.nodes.Get(node)
	switch {
	case err != nil: // the cache has no other error than that it is not there
		return plight{v1.ReasonNodeGone, fmt.Sprintf("node %s was deleted; its agent %s", node, heard)}, false
	case outOfService(n):
		return plight{v1.ReasonNodeGone, fmt.Sprintf("node %s has the taint %s; its agent %s", node, outOfServiceTaint, heard)}, true
	}
	return plight{v1.ReasonNodeDown, fmt.Sprintf("the agent of node %s %s", node, heard)}, true
}

// marked says whether the condition already tells of the plight; its message may be of an earlier moment.
func (p plight) marked(all []metav1.Condition) bool {
	c := meta.FindStatusCondition(all, v1.ReadyCondition)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == p.reason
}

func (p plight) mark(all *[]metav1.Condition, generation int64) {
	meta.SetStatusCondition(all, metav1.Condition{
		Type: v1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: p.reason, Message: p.message(), ObservedGeneration: generation,
	})
}

func (l *leader) markNode(ctx context.Context, node string, p plight) error {
	n := l.storageNode(node)
	if n == nil || n.Unreadable() != nil || p.marked(n.Status.Conditions) {
		return nil //nolint:nilerr // what cannot be read is left alone, and told by its agent
	}
	n = n.DeepCopy()
	p.mark(&n.Status.Conditions, n.Generation)
	if _, err := l.Client.HoldfastV1().StorageNodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: cluster.FieldManager}); err != nil {
		return kube.IgnoreNotFound(err)
	}
	l.Log.Warn("a node is down", "node", node, "reason", p.reason, "message", p.message())
	l.warnf(n, p.reason, "%s", p.message())
	return nil
}

func (l *leader) seeToVolume(ctx context.Context, v *v1.Volume, p plight) error {
	if v.Unreadable() != nil {
		return l.tellUnreadable(ctx, v)
	}
	made := v.Status.Created != nil
	giveUp := v.DeletionTimestamp != nil && (v.DeletionRequested() || !made) || made && v.Spec.NodeLossPolicy() == v1.DeleteOnNodeLoss
	if p.gone() && giveUp {
		return l.giveUp(ctx, v, p)
	}
	away := p.gone() && made && v.Status.Phase != v1.PhaseLost
	if p.marked(v.Status.Conditions) && (!away || v.Status.Phase == v1.PhaseUnreachable) {
		return nil
	}
	v = v.DeepCopy()
	p.mark(&v.Status.Conditions, v.Generation)
	if away {
		v.Status.Phase = v1.PhaseUnreachable
	}
	_, err := l.Client.HoldfastV1().Volumes().UpdateStatus(ctx, v, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	if err == nil && away {
		l.warnf(v, p.reason, "%s", p.message())
	}
	return kube.IgnoreNotFound(err)
}

// giveUp lets a volume go, and keeps of it what its claim needs to have a successor.
func (l *leader) giveUp(ctx context.Context, v *v1.Volume, p plight) error {
	switch {
	case v.DeletionTimestamp == nil:
		kept, err := l.keepClaim(ctx, v)
		if err != nil {
			return kube.IgnoreNotFound(err)
		}
		v = kept
		l.tellOfLoss(v, p)
	case cluster.GivenUp(v):
		return nil
	}
	return l.GiveUpVolume(ctx, v, "its node is gone and onNodeLoss is Delete: "+p.cause)
}

// tellOfLoss says, on the volume and on its claim, that the content is given up: before it is, and again only after
// another has begun to lead.
func (l *leader) tellOfLoss(v *v1.Volume, p plight) {
	if l.told[v.UID] {
		return
	}
	l.told[v.UID] = true
	const text = "the volume is given up because its node is gone and onNodeLoss is Delete: %s. Its claim is made again and gets a new, empty volume"
	l.warnf(v, "VolumeGivenUp", text, p.cause)
	if claim := v.Spec.Labels[v1.ClaimNameLabel]; claim != "" {
		l.warnf(&core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1.ClaimNamespaceLabel],
		}, "VolumeGivenUp", text, p.cause)
	}
}

func (l *leader) seeToSnapshot(ctx context.Context, s *v1.Snapshot, p plight) error {
	if s.Unreadable() != nil {
		return l.tellUnreadable(ctx, s)
	}
	made := s.Status.Created != nil
	if p.gone() && s.DeletionTimestamp != nil && (s.DeletionRequested() || !made) {
		return l.GiveUpSnapshot(ctx, s, "it was deleted while its node was gone")
	}
	away := p.gone() && made && s.Status.Phase != v1.PhaseLost
	if p.marked(s.Status.Conditions) && (!away || s.Status.Phase == v1.PhaseUnreachable) {
		return nil
	}
	s = s.DeepCopy()
	p.mark(&s.Status.Conditions, s.Generation)
	if away {
		s.Status.Phase = v1.PhaseUnreachable
	}
	_, err := l.Client.HoldfastV1().Snapshots().UpdateStatus(ctx, s, metav1.UpdateOptions{FieldManager: cluster.FieldManager})
	return kube.IgnoreNotFound(err)
}

// forget removes what is on record of a node whose Node object was deleted, when nothing of it is left to come back.
func (l *leader) forget(ctx context.Context, node string) error {
	n := l.storageNode(node)
	if n == nil || n.Unreadable() != nil || len(l.VolumesOn(node)) > 0 || len(l.SnapshotsOn(node)) > 0 || len(n.Spec.Discard) > 0 {
		return nil //nolint:nilerr // what cannot be read is left alone, and told by its agent
	}
	exact := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}}
	if err := kube.IgnoreNotFound(l.Client.HoldfastV1().StorageNodes().Delete(ctx, node, exact)); err != nil {
		return err
	}
	err := l.Kubernetes.CoordinationV1().Leases(l.Namespace).Delete(ctx, v1.LeasePrefix+node, metav1.DeleteOptions{})
	return kube.IgnoreNotFound(err)
}

// tellUnreadable says of an object that cannot be decoded, and whose agent is silent, that it is left alone.
func (l *leader) tellUnreadable(ctx context.Context, o v1.Object) error {
	written, err := l.unreadable.Report(ctx, l.Client, o, cluster.FieldManager)
	if written != nil {
		l.warnf(o, v1.ReasonUnreadable, "%s", kube.UnreadableMessage(o))
	}
	return err
}
