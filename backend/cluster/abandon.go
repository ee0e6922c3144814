package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func (b *Backend) abandonVolume(ctx context.Context, c *call[*v1.Volume], o *v1.Volume) error {
	return abandon(ctx, b, b.volumes, c, o)
}

func (b *Backend) abandonSnapshot(ctx context.Context, c *call[*v1.Snapshot], o *v1.Snapshot) error {
	return abandon(ctx, b, b.snapshots, c, o)
}

// abandon takes away an object whose agent cannot be reached. The agent learns from its StorageNode, before anything
// else, that what is on its disk by that name is not to come back.
func abandon[T object](ctx context.Context, b *Backend, r *records[T], c *call[T], o T) error {
	s := r.look(o)
	if err := b.discard(ctx, s.node, v1.Discard{Kind: r.kind, Name: s.name, UID: o.GetUID()}); err != nil {
		return r.refused(backend.ID(s.name), err)
	}
	if o.GetDeletionTimestamp() == nil {
		if removed, err := r.remove(ctx, c, o); !removed || err != nil {
			return err
		}
	}
	now, err := r.client.Get(ctx, s.name, metav1.GetOptions{})
	if err == nil && now.GetUID() == o.GetUID() && now.GetDeletionTimestamp() != nil {
		err = r.letGo(ctx, now)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		c.vanish(o.GetUID())
		b.log.Info("gave up what a node that is down was asked for", "kind", r.kind, "id", s.name, "node", s.node)
		return nil
	case apierrors.IsConflict(err):
		return r.refresh(ctx, c)
	}
	return r.refused(backend.ID(s.name), err)
}

// discard adds to what an agent must remove when it is back. A node that is not on record any more was declared gone
// for good.
func (b *Backend) discard(ctx context.Context, node string, d v1.Discard) error {
	nodes := b.Client.HoldfastV1().StorageNodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := nodes.Get(ctx, node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		all := v1.ParseDiscards(n.Annotations[v1.DiscardAnnotation])
		if slices.Contains(all, d) {
			return nil
		}
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`,
			n.ResourceVersion, v1.DiscardAnnotation, v1.FormatDiscards(append(all, d)))
		_, err = nodes.Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
}
