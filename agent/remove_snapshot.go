package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// errWaits means that another change must come first; nothing has failed.
var errWaits = errors.New("waits")

// removeSnapshot deletes the snapshot from the disk if that is requested, and then removes the finalizer. A refusal is
// recorded and retried.
func (a *Agent) removeSnapshot(ctx context.Context, o *v1beta1.Snapshot) error {
	if !owned(o) {
		return nil
	}
	k := key{v1beta1.SourceSnapshot, o.Name}
	requested, err := a.requested(k, o)
	if err == nil && !requested {
		a.recordForgotten(o, k, "")
		return a.releaseSnapshot(ctx, o)
	}
	if err == nil {
		err = a.deleteSnapshot(ctx, o)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errors.Join(a.recordSnapshot(ctx, o, nil, err), err)
	}
	a.log.Info("deleted", "kind", v1beta1.SourceSnapshot, "id", o.Name, "requestedBy", o.Spec.Deletion.RequestedBy, "reason", o.Spec.Deletion.Reason)
	return a.releaseSnapshot(ctx, o)
}

func (a *Agent) releaseSnapshot(ctx context.Context, o *v1beta1.Snapshot) error {
	return kube.IgnoreNotFound(a.snapshots.RemoveFinalizer(ctx, o, v1beta1.AgentFinalizer))
}

// deleteSnapshot does not delete the snapshot of another object with the same name if the object's own was never taken.
// A snapshot that existed and is in no readable pool does not count as deleted.
func (a *Agent) deleteSnapshot(ctx context.Context, o *v1beta1.Snapshot) error {
	id := backend.ID(o.Name)
	s, err := a.snapshotter.GetSnapshot(ctx, id)
	existed := snapshotWasReal(o)
	switch {
	case !existed && err == nil && errors.Is(s.Satisfies(convert.ToSnapshotSpec(&o.Spec)), backend.ErrExists):
		return nil
	case existed && errors.Is(err, backend.ErrNotFound):
		if err := a.lost(ctx, placeOfSnapshot(o)); !errors.Is(err, errMissing) {
			return waitsForPool(err)
		}
	}
	if o.Spec.Group == nil || a.grouper == nil {
		return ended(a.snapshotter.DeleteSnapshot(ctx, id), func() error { _, err := a.snapshotter.GetSnapshot(ctx, id); return err })
	}
	return a.deleteGroup(ctx, o)
}

// deleteGroup removes a group when the deletion of all its members is requested.
func (a *Agent) deleteGroup(ctx context.Context, o *v1beta1.Snapshot) error {
	wanted := convert.ToGroup(o.Spec.Group)
	id, err := backend.IDFor(wanted.Name)
	if err != nil {
		return nil //nolint:nilerr // such a group was never made
	}
	g, err := a.grouper.GetGroup(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		g = &backend.Group{} // damaged: its members are not known, but it can be deleted
	} else if another := g.Satisfies(wanted) != nil; another && o.Status.CreationTime == nil {
		return nil
	}
	if err := a.allDeleted(o, g.Snapshots); err != nil {
		return err
	}
	return ended(a.grouper.DeleteGroup(ctx, id), func() error { _, err := a.grouper.GetGroup(ctx, id); return err })
}

// allDeleted waits until the deletion of all members of a group is requested. A member without an object gets one, so
// that its deletion can be requested.
func (a *Agent) allDeleted(o *v1beta1.Snapshot, onDisk []*backend.Snapshot) error {
	waits := func(name string) error {
		return fmt.Errorf("%w for Snapshot %s to be deleted too: group %s goes only as a whole", errWaits, name, backend.Quote(o.Spec.Group.Name))
	}
	for _, m := range a.siblings(o) {
		if m.DeletionTimestamp == nil || !m.DeletionRequested() {
			return waits(m.Name)
		}
	}
	for _, s := range onDisk {
		switch o := a.snapshotObject(string(s.ID)); {
		case o != nil && o.Unreadable() != nil: // its group may be unreadable too
			return waits(o.Name)
		case o == nil:
			a.loop.Enqueue(key{v1beta1.SourceSnapshot, string(s.ID)})
			return waits(string(s.ID))
		}
	}
	return nil
}

// siblings are the objects of the other members of a group.
func (a *Agent) siblings(o *v1beta1.Snapshot) (all []*v1beta1.Snapshot) {
	if o.Spec.Group == nil {
		return nil
	}
	for _, other := range listed[v1beta1.Snapshot](a.watches.snapshots) {
		if g := other.Spec.Group; g != nil && g.Name == o.Spec.Group.Name && other.Name != o.Name {
			all = append(all, other)
		}
	}
	return all
}
