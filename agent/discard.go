package agent

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// discard removes from the disk what the controller gave up while this node was not heard of, before its name means
// anything else. o is the object of that name now; made says that it is real.
func (a *Agent) discard(ctx context.Context, k key, o metav1.Object, made bool) error {
	n := a.nodeObject()
	if n == nil {
		return nil
	}
	all := n.Spec.Discard
	i := slices.IndexFunc(all, func(d v1.Discard) bool { return d.Kind == k.kind && d.Name == k.name && !a.work.done(d.UID) })
	switch {
	case i < 0, hasUID(o, all[i].UID): // not given up yet, or not at all
		return nil
	case readable(n) != nil:
		return readable(n)
	case !made:
		heard, err := a.heard(k)
		if err != nil {
			return err
		}
		if !heard {
			return a.discarded(ctx, all[i])
		}
		// The cache may have what was settled by an agent before this one, and the volume may have been restored since.
		if n, err := a.Client.HoldfastV1().StorageNodes().Get(ctx, a.Node, metav1.GetOptions{}); err != nil || !slices.ContainsFunc(n.Spec.Discard, all[i].Same) {
			return err
		}
		a.log.Info("removing what was given up while this node was not heard of", "kind", k.kind, "id", k.name,
			"requestedBy", all[i].RequestedBy, "reason", all[i].Reason)
		if err := a.deleteAny(ctx, k); err != nil {
			return err
		}
	}
	if err := a.discarded(ctx, all[i]); err != nil {
		return err
	}
	a.work.finish(all[i].UID)
	return nil
}

func hasUID(o metav1.Object, uid types.UID) bool {
	switch o := o.(type) {
	case *v1.Volume:
		return o != nil && o.UID == uid
	case *v1.Snapshot:
		return o != nil && o.UID == uid
	}
	return false
}

// deleteAny waits for pools that are out of reach: nobody remembers in which one it lies.
func (a *Agent) deleteAny(ctx context.Context, k key) error {
	if k.kind == v1.SourceVolume {
		if _, err := a.Backend.Get(ctx, k.id()); errors.Is(err, backend.ErrNotFound) {
			return a.anyPoolOut(ctx)
		}
		return a.Backend.Delete(ctx, k.id())
	}
	s, err := a.snapshotter.GetSnapshot(ctx, k.id())
	if errors.Is(err, backend.ErrNotFound) {
		return a.anyPoolOut(ctx)
	}
	if err == nil && s.Group != "" && a.grouper != nil {
		return a.grouper.DeleteGroup(ctx, s.Group) // it goes only as a whole
	}
	return a.snapshotter.DeleteSnapshot(ctx, k.id())
}

// discarded takes one entry off the list.
func (a *Agent) discarded(ctx context.Context, d v1.Discard) error {
	return a.editNode(ctx, func(n *v1.StorageNode) (spec map[string]any, err error) {
		if err := readable(n); err != nil {
			return nil, err // what is missing of the list would be lost
		}
		return map[string]any{"discard": slices.DeleteFunc(slices.Clone(n.Spec.Discard), d.Same)}, nil
	})
}
