package agent

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		live, failure := a.Client.HoldfastV1beta1().Snapshots().Get(ctx, o.Name, metav1.GetOptions{})
		if still, err := confirmed(o, live, failure); !still {
			return err
		}
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
	s, err := a.Backend.GetSnapshot(ctx, id)
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
		return a.deleteAlone(ctx, id)
	}
	return a.deleteGroup(ctx, o)
}

func (a *Agent) deleteAlone(ctx context.Context, id backend.ID) error {
	return ended(a.Backend.DeleteSnapshot(ctx, id), func() error { _, err := a.Backend.GetSnapshot(ctx, id); return err })
}

// deleteGroup removes a group when the deletion of all its members is requested.
func (a *Agent) deleteGroup(ctx context.Context, o *v1beta1.Snapshot) error {
	wanted := convert.ToGroup(o.Spec.Group)
	id, err := backend.IDFor(wanted.Name)
	if err != nil {
		return nil //nolint:nilerr // such a group was never made
	}
	g, err := a.grouper.GetGroup(ctx, id)
	switch {
	case backend.IsAbsent(err): // its record may have been lost with another pool
		return a.deleteAlone(ctx, backend.ID(o.Name))
	case errors.Is(err, backend.ErrNotFound):
		return waitsForPool(fmt.Errorf("%w: %w", errPoolOut, err))
	case err != nil:
		g = &backend.Group{} // damaged: its members are not known, but it can be deleted
	case g.Satisfies(wanted) != nil && o.Status.CreationTime == nil: // it is another
		return nil
	}
	if err := a.allDeleted(ctx, o, g.Snapshots); err != nil {
		return err
	}
	return ended(a.grouper.DeleteGroup(ctx, id), func() error { _, err := a.grouper.GetGroup(ctx, id); return err })
}

// allDeleted waits until the deletion of all members of a group is requested. A member without an object that was not
// given up gets one, so that its deletion can be requested.
func (a *Agent) allDeleted(ctx context.Context, o *v1beta1.Snapshot, onDisk []*backend.Snapshot) error {
	group := o.Spec.Group.Name
	for _, m := range a.siblings(o) {
		if m.DeletionTimestamp == nil || !m.DeletionRequested() {
			return waitsForMember(m.Name, group)
		}
	}
	for _, s := range onDisk {
		k := key{v1beta1.SourceSnapshot, string(s.ID)}
		if o := a.snapshotObject(k.name); o != nil {
			if o.Unreadable() != nil { // its group may be unreadable too
				return waitsForMember(k.name, group)
			}
			continue
		}
		may, err := a.mayAdopt(ctx, k)
		switch {
		case err != nil:
			return err
		case may:
			a.loop.Enqueue(k)
			return waitsForMember(k.name, group)
		}
	}
	return nil
}

func waitsForMember(name, group string) error {
	return fmt.Errorf("%w for Snapshot %s to be deleted too: group %s goes only as a whole", errWaits, name, backend.Quote(group))
}

// siblings are the objects of the other members of a group.
func (a *Agent) siblings(o *v1beta1.Snapshot) (all []*v1beta1.Snapshot) {
	if o.Spec.Group == nil {
		return nil
	}
	for _, other := range kube.AllIn[*v1beta1.Snapshot](a.watches.snapshots.GetStore()) {
		if g := other.Spec.Group; g != nil && g.Name == o.Spec.Group.Name && other.Name != o.Name {
			all = append(all, other)
		}
	}
	return all
}
