package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// discard removes from the disk what the controller gave up while this node was unreachable, before its name is used
// for anything else. o is the present object of that name; made says that its volume exists.
func (a *Agent) discard(ctx context.Context, k key, o metav1.Object, made bool) error {
	n := a.nodeObject()
	if n == nil {
		return nil
	}
	all := n.Spec.Discard
	i := slices.IndexFunc(all, func(d v1beta1.Discard) bool {
		return d.Kind == k.kind && d.Name == k.name && !has(&a.work.discarded, d.UID)
	})
	switch {
	case i < 0, hasUID(o, all[i].UID): // it was not given up, or the cache does not show it yet
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
		// The cache may have an entry that a previous agent has handled, and the volume may have been restored since.
		live, err := a.Client.HoldfastV1beta1().StorageNodes().Get(ctx, a.Node, metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(live.Spec.Discard, all[i].Same) {
			return err
		}
		a.log.Info("removing what was given up while this node was unreachable", "kind", k.kind, "id", k.name,
			"requestedBy", all[i].RequestedBy, "reason", all[i].Reason)
		if err := a.deleteAny(ctx, live, k); err != nil {
			return err
		}
	}
	if err := a.discarded(ctx, all[i]); err != nil {
		return err
	}
	a.work.discarded.Store(all[i].UID, true)
	return nil
}

// givenUp says whether a volume or snapshot must be discarded.
func givenUp(n *v1beta1.StorageNode, k key) bool {
	return slices.ContainsFunc(n.Spec.Discard, func(d v1beta1.Discard) bool { return d.Kind == k.kind && d.Name == k.name })
}

// mayAdopt says whether an entry on the disk without an object may get one: it may not if it was given up. It reads the
// API server: spec.discard is written before the object is deleted, but the caches may show that in the other order.
func (a *Agent) mayAdopt(ctx context.Context, k key) (bool, error) {
	n, err := kube.Live(ctx, a.Client.HoldfastV1beta1().StorageNodes().Get, a.Node)
	return err == nil && (n == nil || !givenUp(n, k)), err
}

func hasUID(o metav1.Object, uid types.UID) bool {
	switch o := o.(type) {
	case *v1beta1.Volume:
		return o != nil && o.UID == uid
	case *v1beta1.Snapshot:
		return o != nil && o.UID == uid
	}
	return false
}

// deleteAny waits for pools that are out of reach, since any of them may have the entry.
func (a *Agent) deleteAny(ctx context.Context, n *v1beta1.StorageNode, k key) error {
	if k.kind == v1beta1.SourceVolume {
		if _, err := a.Backend.Get(ctx, k.id()); errors.Is(err, backend.ErrNotFound) {
			return a.anyPoolOut(ctx)
		}
		return a.Backend.Delete(ctx, k.id())
	}
	s, err := a.Backend.GetSnapshot(ctx, k.id())
	if errors.Is(err, backend.ErrNotFound) {
		return a.anyPoolOut(ctx)
	}
	if err == nil && s.Group != "" && a.grouper != nil {
		return a.discardGroup(ctx, n, s)
	}
	return a.Backend.DeleteSnapshot(ctx, k.id())
}

// discardGroup deletes the group of a snapshot that was given up, which is only deleted as a whole, when its other
// members may go too.
func (a *Agent) discardGroup(ctx context.Context, n *v1beta1.StorageNode, s *backend.Snapshot) error {
	g, err := a.grouper.GetGroup(ctx, s.Group)
	switch {
	case backend.IsAbsent(err): // its record may have been lost with another pool
		return a.Backend.DeleteSnapshot(ctx, s.ID)
	case errors.Is(err, backend.ErrNotFound):
		return waitsForPool(fmt.Errorf("%w: %w", errPoolOut, err))
	case err != nil:
		g = &backend.Group{ID: s.Group} // damaged: its members are known by their objects only
	}
	var names []string
	for _, m := range g.Snapshots {
		names = append(names, string(m.ID))
	}
	for _, o := range kube.AllIn[*v1beta1.Snapshot](a.watches.snapshots.GetStore()) {
		if o.Spec.Group == nil {
			continue
		}
		if id, err := backend.IDFor(o.Spec.Group.Name); err == nil && id == s.Group {
			names = append(names, o.Name)
		}
	}
	for _, name := range names {
		if name != string(s.ID) && !a.mayGo(n, name) {
			return waitsForMember(name, cmp.Or(g.Name, string(s.Group)))
		}
	}
	return a.grouper.DeleteGroup(ctx, s.Group)
}

// mayGo says whether a snapshot may be deleted with its group: the deletion of its object is requested, or it has none
// and was given up.
func (a *Agent) mayGo(n *v1beta1.StorageNode, name string) bool {
	if o := a.snapshotObject(name); o != nil {
		return o.DeletionTimestamp != nil && o.DeletionRequested()
	}
	return givenUp(n, key{v1beta1.SourceSnapshot, name})
}

// discarded removes one entry from the list.
func (a *Agent) discarded(ctx context.Context, d v1beta1.Discard) error {
	return kube.EditNode(ctx, a.Client, a.Node, fieldManager, func(n *v1beta1.StorageNode) (spec map[string]any, err error) {
		if err := readable(n); err != nil {
			return nil, err // unreadable entries of the list would be lost
		}
		return map[string]any{"discard": slices.DeleteFunc(slices.Clone(n.Spec.Discard), d.Same)}, nil
	})
}
