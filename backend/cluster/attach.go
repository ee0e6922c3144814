package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

var _ backend.Attacher = (*Backend)(nil)

// Attach records in the object which node has the volume attached. The write fails if another one was recorded in between,
// so two nodes never have it, whichever replica writes.
func (b *Backend) Attach(ctx context.Context, id backend.ID, node string) error {
	o, err := b.editAttached(ctx, id, func(now string) (string, error) {
		others := []string{now} // none in an object that was deleted, and written again by the pool's agent
		for _, n := range b.usedOn(id) {
			others = append(others, n.Name)
		}
		for _, other := range others {
			if other == "" || other == node {
				continue
			}
			if err := b.checkReleased(ctx, id, other, node); err != nil {
				return "", err
			}
		}
		return node, nil
	})
	if err != nil {
		return err
	}
	return b.awaitLook(ctx, o)
}

// lookTime is how long the agent of a pool has to look at the clients of a volume.
const lookTime = 10 * time.Second

// awaitLook fails if the agent of its pool sees a client that has the volume open and is not one of the node that it is attached
// to. What nodes have recorded was compared before, so an agent that is away, or of an earlier release, delays that and stops nothing.
func (b *Backend) awaitLook(ctx context.Context, attached *v1beta1.Volume) error {
	node, since := attached.Annotations[v1beta1.AttachedAnnotation], attached.Annotations[v1beta1.AttachedSinceAnnotation]
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	c := b.volumes.join(attached.Name)
	defer c.leave()
	c.learn(attached)
	err := await(limited, b.volumes, c, func(o *v1beta1.Volume) (bool, error) {
		seen := o.SeenAttached()
		switch {
		case o.Status.Access == nil || o.Status.Access.RBD == nil:
			return true, nil
		case o.Annotations[v1beta1.AttachedAnnotation] != node || o.Annotations[v1beta1.AttachedSinceAnnotation] != since:
			return false, fmt.Errorf("%w: volume %s was detached from node %s before the agent of its pool had looked who has it open", backend.ErrPrecondition, o.Name, node)
		case seen == nil && b.liveness.down(o.Spec.Node) == "":
			return false, nil
		case seen != nil && seen.Client != "":
			return false, fmt.Errorf("%w: volume %s: a client at %s has its image open, and node %s has recorded no such client: it can be attached once that has gone; see who it is with `rbd status`, and unmap the image there",
				backend.ErrPrecondition, o.Name, seen.Client, node)
		}
		return true, nil
	})
	if errors.Is(err, backend.ErrBusy) && ctx.Err() == nil {
		b.Log.Warn("the agent of the pool has not said who else has the volume open", "volume", attached.Name, "node", node, "waited", lookTime)
		return nil
	}
	return err
}

// checkReleased returns an error while a node may use a volume that another one is to have.
func (b *Backend) checkReleased(ctx context.Context, id backend.ID, node, next string) error {
	since, err := b.attachedSince(ctx, id, node)
	switch {
	case err != nil:
		return fmt.Errorf("%w: volume %s: whether it is still attached to node %s: %w", backend.ErrUnavailable, id, node, err)
	case since != nil:
		return fmt.Errorf("%w: volume %s is attached to node %s, and one node at a time may use it; it is attached to node %s once it is detached there",
			backend.ErrPrecondition, id, node, next)
	}
	return b.CheckDetached(ctx, id, node) // its VolumeAttachment was removed by force
}

// Detach ends that; of no node, that of any.
func (b *Backend) Detach(ctx context.Context, id backend.ID, node string) error {
	_, err := b.editAttached(ctx, id, func(now string) (string, error) {
		if node == "" || now == node {
			return "", nil
		}
		return now, nil
	})
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	return err
}

func (b *Backend) editAttached(ctx context.Context, id backend.ID, next func(now string) (string, error)) (o *v1beta1.Volume, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		if o, err = b.Client.HoldfastV1beta1().Volumes().Get(ctx, string(id), metav1.GetOptions{}); err != nil {
			return err
		}
		now := o.Annotations[v1beta1.AttachedAnnotation]
		node, err := next(now)
		if err != nil || node == now {
			return err
		}
		annotations := map[string]any{v1beta1.AttachedAnnotation: nil, v1beta1.AttachedSinceAnnotation: nil}
		if node != "" {
			annotations = map[string]any{v1beta1.AttachedAnnotation: node, v1beta1.AttachedSinceAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
		}
		o, err = b.volumes.merge(ctx, o, map[string]any{"metadata": map[string]any{"annotations": annotations}})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w: volume %s", backend.ErrNotFound, id)
	case err != nil && backend.FindCode(err) == "":
		err = fmt.Errorf("%w: volume %s: where it is attached cannot be recorded: %w", backend.ErrUnavailable, id, err)
	}
	return o, err
}

// usedOn returns the nodes whose kernels have a volume in a Ceph cluster, by the records of their agents.
func (b *Backend) usedOn(id backend.ID) []*v1beta1.StorageNode {
	all := kube.Cached(b.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Lister().List)
	return slices.DeleteFunc(all, func(n *v1beta1.StorageNode) bool { return !slices.Contains(n.Status.CephVolumes, string(id)) })
}

// unused fails while a node has a volume of a Ceph pool, also after its VolumeAttachment was removed by force: the pool itself
// does not see who only reads.
func (b *Backend) unused(v *v1beta1.Volume) error {
	for _, n := range b.usedOn(backend.ID(v.Name)) {
		if n.WasShutOut() || b.fencingIsDisabled() && b.liveness.down(n.Name) != "" { // which is never shut out
			continue
		}
		return fmt.Errorf("%w: volume %s is in use on node %s, whose kernel has it; it is deleted when its pods there have ended, or the node is shut out of Ceph",
			backend.ErrPrecondition, v.Name, n.Name)
	}
	return nil
}

// attachedSince returns when the VolumeAttachment of a volume and a node was made; nil if there is none.
func (b *Backend) attachedSince(ctx context.Context, id backend.ID, node string) (*metav1.Time, error) {
	name := v1beta1.AttachmentName(string(id), b.Driver, node)
	found, err := b.Kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return nil, err
	}
	if a := v1beta1.Find(found.Items, func(a storage.VolumeAttachment) bool { return a.Name == name }); a != nil {
		return &a.CreationTimestamp, nil
	}
	return nil, nil
}
