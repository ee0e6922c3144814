package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func (a *Agent) settleSnapshot(ctx context.Context, k key) error {
	o := a.snapshotObject(k.name)
	switch {
	case o == nil:
		a.work.forget(k)
	case a.work.unseen(k, o):
		return errUnseen
	case o.Unreadable() != nil:
		return a.tellUnreadable(ctx, k, o)
	}
	if a.snapshotter == nil {
		return a.recordNoSnapshots(ctx, o)
	}
	if err := a.discard(ctx, k, o, o != nil && o.Status.Created != nil); err != nil {
		return err
	}
	switch {
	case o == nil:
		return a.adoptSnapshot(ctx, k.id())
	case o.DeletionTimestamp != nil:
		return a.removeSnapshot(ctx, o)
	case o.DeletionRequested():
		return nil // whoever has requested it deletes the object next
	}
	o, err := a.ownSnapshot(ctx, o)
	if err != nil {
		return err
	}
	s, fresh, err := a.take(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err() // cut short, which says nothing about the snapshot
	}
	if err := a.recordSnapshot(ctx, o, s, err); err != nil {
		if fresh && o.Spec.Group == nil && apierrors.IsNotFound(err) {
			return a.snapshotter.DeleteSnapshot(ctx, k.id())
		}
		return err
	}
	return retryable(err)
}

// recordNoSnapshots answers for a backend that knows no snapshots.
func (a *Agent) recordNoSnapshots(ctx context.Context, o *v1.Snapshot) error {
	switch {
	case o == nil:
		return nil
	case o.DeletionTimestamp != nil:
		return a.releaseSnapshot(ctx, o)
	}
	return a.recordSnapshot(ctx, o, nil, fmt.Errorf("%w snapshot %s: the storage of node %s takes no snapshots", backend.ErrInvalid, o.Name, a.Node))
}

func (a *Agent) ownSnapshot(ctx context.Context, o *v1.Snapshot) (*v1.Snapshot, error) {
	if owned(o) {
		return o, nil
	}
	o = o.DeepCopy()
	o.Finalizers = append(o.Finalizers, v1.AgentFinalizer)
	written, err := a.Client.HoldfastV1().Snapshots().Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, err
	}
	a.work.wrote(key{v1.SourceSnapshot, o.Name}, written)
	return written, nil
}

// take makes sure that the snapshot is on disk. fresh says that this call has made it.
func (a *Agent) take(ctx context.Context, o *v1.Snapshot) (s *backend.Snapshot, fresh bool, err error) {
	s, err = a.snapshotter.GetSnapshot(ctx, backend.ID(o.Name))
	absent := errors.Is(err, backend.ErrNotFound)
	switch {
	case err != nil && !absent:
		return nil, false, err
	case absent && snapshotWasReal(o):
		return nil, false, a.lost(ctx, placeOfSnapshot(o))
	case snapshotWasReal(o):
		return s, false, nil
	case absent && settled(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return nil, false, convert.ToError(o.Status.Error)
	}
	s, err = a.makeSnapshot(ctx, o)
	return s, absent, err
}

func placeOfSnapshot(o *v1.Snapshot) place {
	return place{pool: o.Status.Pool, id: o.Status.PoolID, lost: o.Status.Phase == v1.PhaseLost}
}

func snapshotWasReal(o *v1.Snapshot) bool { return o.Status.Created != nil || adopted(o) }

func (a *Agent) makeSnapshot(ctx context.Context, o *v1.Snapshot) (*backend.Snapshot, error) {
	spec := convert.ToSnapshotSpec(&o.Spec)
	if err := checkName(o.Name, spec.Name); err != nil {
		return nil, err
	}
	if o.Spec.Group == nil {
		return a.snapshotter.Snapshot(ctx, spec)
	}
	return a.makeGroup(ctx, o, spec)
}

// makeGroup takes the whole group, whichever member is looked at first, and returns this member of it.
func (a *Agent) makeGroup(ctx context.Context, o *v1.Snapshot, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	if a.grouper == nil {
		return nil, fmt.Errorf("%w snapshot %s: the storage of node %s takes no snapshots of groups", backend.ErrInvalid, o.Name, a.Node)
	}
	wanted := convert.ToGroup(o.Spec.Group)
	if wanted.Member(spec.Source).Name != spec.Name {
		return nil, fmt.Errorf("%w object: spec.name is %s, but the member of group %s for volume %s must be named %s",
			backend.ErrInvalid, backend.Quote(spec.Name), backend.Quote(wanted.Name), spec.Source, backend.Quote(wanted.Member(spec.Source).Name))
	}
	group, err := a.grouper.SnapshotGroup(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for _, s := range group.Snapshots {
		if string(s.ID) == o.Name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: group %s was taken without snapshot %s; delete the group", backend.ErrExists, group.ID, o.Name)
}

// recordSnapshot writes what has become of a snapshot into its object, if that is news.
func (a *Agent) recordSnapshot(ctx context.Context, o *v1.Snapshot, s *backend.Snapshot, failure error) error {
	status := snapshotStatus(o, s, failure)
	if !newsOfSnapshot(&o.Status, status) {
		return nil
	}
	a.tellTransition(o, o.Status.Phase, status.Phase, status.Error, status.Conditions)
	a.tellHealth(o, o.Status.Conditions, status.Conditions)
	o = o.DeepCopy()
	o.Status = *status
	written, err := a.Client.HoldfastV1().Snapshots().UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	a.work.wrote(key{v1.SourceSnapshot, o.Name}, written)
	return nil
}

// snapshotStatus is the status of an object whose snapshot is t, nil if there is none.
func snapshotStatus(o *v1.Snapshot, t *backend.Snapshot, failure error) *v1.SnapshotStatus {
	s := o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	r := report{exists: t != nil, deleting: o.DeletionTimestamp != nil, failure: failure, node: o.Spec.Node}
	if t != nil {
		convert.ShowSnapshot(s, t)
		r.condition, r.usable = t.Condition, !t.Condition.Abnormal
	}
	s.Phase, s.Error = r.phase(), r.errorOf()
	r.conditions(&s.Conditions, o.Generation)
	s.SetColumns()
	return s
}

func newsOfSnapshot(old, now *v1.SnapshotStatus) bool {
	if noticeable(v1.Bytes(old.Used), v1.Bytes(now.Used), v1.Bytes(now.Size)) {
		return true
	}
	same := now.DeepCopy()
	same.Used, same.Columns.Used = old.Used, old.Columns.Used
	return !equality.Semantic.DeepEqual(old, same)
}
