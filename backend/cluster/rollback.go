package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// GivenUp says whether a volume or snapshot was given up and its object only remains for another finalizer, such as its claim's.
func GivenUp(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && !slices.Contains(o.GetFinalizers(), v1beta1.AgentFinalizer)
}

// GiveUpVolume removes a volume whose node does not come back. If it does, its agent removes the data.
func (b *Backend) GiveUpVolume(ctx context.Context, v *v1beta1.Volume, reason string) error {
	c := b.volumes.join(v.Name)
	defer c.leave()
	return rollBack(ctx, b, b.volumes, c, v, reason)
}

// GiveUpSnapshot removes a snapshot whose node does not come back. If it does, its agent removes the data.
func (b *Backend) GiveUpSnapshot(ctx context.Context, s *v1beta1.Snapshot, reason string) error {
	c := b.snapshots.join(s.Name)
	defer c.leave()
	return rollBack(ctx, b, b.snapshots, c, s, reason)
}

// HandOverVolume removes the object of a volume that is on the node home now, whose agent writes it again. No data is
// touched, unless its deletion was requested: then that agent gets the request.
func (b *Backend) HandOverVolume(ctx context.Context, v *v1beta1.Volume, home string) error {
	return handOver(ctx, b, b.volumes, v, home)
}

// HandOverSnapshot is HandOverVolume of a snapshot.
func (b *Backend) HandOverSnapshot(ctx context.Context, s *v1beta1.Snapshot, home string) error {
	return handOver(ctx, b, b.snapshots, s, home)
}

// handOver removes the finalizer first. After a crash in between, the next try finds an object without one, and continues.
func handOver[T object](ctx context.Context, b *Backend, r *records[T], o T, home string) error {
	c := r.join(o.GetName())
	defer c.leave()
	if request := r.look(o).request; request != nil { // it is about the data, on any node
		if err := b.discard(ctx, home, v1beta1.Discard{Kind: r.kind, Name: o.GetName(), DeletionRequest: *request}); err != nil {
			return err
		}
	}
	if err := r.removeFinalizer(ctx, o); err != nil {
		return err
	}
	if o.GetDeletionTimestamp() == nil {
		exact := *metav1.NewPreconditionDeleteOptions(string(o.GetUID()))
		if err := kube.IgnoreNotFound(r.client.Delete(ctx, o.GetName(), exact)); err != nil {
			return err
		}
	}
	c.vanish(o.GetUID())
	b.Log.Info("removed the finalizer of an object whose pool is on another node now", "kind", r.kind, "id", o.GetName(), "node", home)
	return nil
}

// rollBack removes an object whose agent cannot be reached. The discard in the StorageNode makes the agent remove the data
// when it is back. It is written when the deletion of the object has been requested and its finalizer still holds it: an
// object that is in use again by then has none.
func rollBack[T object](ctx context.Context, b *Backend, r *records[T], c *call[T], o T, reason string) error {
	s := r.look(o)
	d := v1beta1.Discard{Kind: r.kind, Name: s.name, DeletionRequest: *cmp.Or(s.request, newRequest(o, reason))}
	if o.GetDeletionTimestamp() == nil {
		if removed, err := r.remove(ctx, c, o, reason); !removed || err != nil {
			return err
		}
	}
	if err := b.discard(ctx, s.node, d); err != nil {
		return r.refused(backend.ID(s.name), err)
	}
	now, err := r.client.Get(ctx, s.name, metav1.GetOptions{})
	if err == nil && now.GetUID() == o.GetUID() && now.GetDeletionTimestamp() != nil {
		err = r.removeFinalizer(ctx, now)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		c.vanish(o.GetUID())
		b.Log.Info("gave up an object of a node that is down", "kind", r.kind, "id", s.name, "node", s.node)
		return nil
	case apierrors.IsConflict(err):
		return r.refresh(ctx, c)
	}
	return r.refused(backend.ID(s.name), err)
}

// discard adds an entry that an agent must remove when it is back. A node without a StorageNode is gone for good.
func (b *Backend) discard(ctx context.Context, node string, d v1beta1.Discard) error {
	return kube.EditNode(ctx, b.Client, node, FieldManager, func(n *v1beta1.StorageNode) (map[string]any, error) {
		if err := n.Unreadable(); err != nil {
			return nil, fmt.Errorf("StorageNode %s cannot be read, so it is left as it is: %w", node, err) // a write would lose unreadable entries of the list
		}
		if slices.ContainsFunc(n.Spec.Discard, d.Same) {
			return nil, nil
		}
		return map[string]any{"discard": append(slices.Clone(n.Spec.Discard), d)}, nil
	})
}
