package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func (a *Agent) reconcileSnapshot(ctx context.Context, k key) error {
	o := a.snapshotObject(k.name)
	switch {
	case o == nil:
		a.snapshots.Forget(k.name)
	case o.Unreadable() != nil:
		return a.reportUnreadable(ctx, k, o)
	}
	if err := a.discard(ctx, k, o, o != nil && o.Status.CreationTime != nil); err != nil {
		return err
	}
	switch {
	case o == nil:
		return a.adoptSnapshot(ctx, k.id())
	case o.DeletionTimestamp != nil:
		return a.removeSnapshot(ctx, o)
	case o.DeletionRequested():
		return nil // the requester deletes the object next
	}
	o, err := a.snapshots.AddFinalizer(ctx, o, v1beta1.AgentFinalizer) // before anything is created on disk
	if err != nil {
		return err
	}
	s, fresh, failure := a.take(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err() // interrupted: the state of the snapshot is unknown
	}
	err = a.recordSnapshot(ctx, o, s, failure)
	if fresh && o.Spec.Group == nil && apierrors.IsNotFound(err) {
		return a.Backend.DeleteSnapshot(ctx, k.id())
	}
	return cmp.Or(err, retryable(failure))
}

// take takes the snapshot unless it is on disk. fresh says that this call has taken it.
func (a *Agent) take(ctx context.Context, o *v1beta1.Snapshot) (s *backend.Snapshot, fresh bool, err error) {
	s, err = a.Backend.GetSnapshot(ctx, backend.ID(o.Name))
	absent := errors.Is(err, backend.ErrNotFound)
	switch {
	case err != nil && !absent:
		return nil, false, err
	case absent && snapshotWasReal(o):
		return nil, false, a.lost(ctx, placeOfSnapshot(o))
	case snapshotWasReal(o):
		return s, false, nil
	case absent && refusedForGood(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return nil, false, convert.ToError(o.Status.Error)
	}
	s, err = a.createSnapshot(ctx, o)
	return s, absent, err
}

func placeOfSnapshot(o *v1beta1.Snapshot) place {
	return place{pool: o.Status.Pool, id: o.Status.PoolID, lost: o.Status.Phase == v1beta1.PhaseLost}
}

func snapshotWasReal(o *v1beta1.Snapshot) bool { return o.Status.CreationTime != nil || adopted(o) }

func (a *Agent) createSnapshot(ctx context.Context, o *v1beta1.Snapshot) (*backend.Snapshot, error) {
	spec := convert.ToSnapshotSpec(&o.Spec)
	if err := checkName(o.Name, spec.Name); err != nil {
		return nil, err
	}
	if o.Spec.Group == nil {
		return a.Backend.Snapshot(ctx, spec)
	}
	return a.createGroup(ctx, o, spec)
}

// createGroup takes all snapshots of the group, whichever member is reconciled first, and returns this member.
func (a *Agent) createGroup(ctx context.Context, o *v1beta1.Snapshot, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	if a.grouper == nil {
		return nil, fmt.Errorf("%w snapshot %s: %s takes no snapshots of groups; make a snapshot of each of its volumes", backend.ErrInvalid, o.Name, v1beta1.SiteOf(a.Node))
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

// recordSnapshot writes the state of a snapshot into its object, if it has changed.
func (a *Agent) recordSnapshot(ctx context.Context, o *v1beta1.Snapshot, s *backend.Snapshot, failure error) error {
	status := snapshotStatus(o, s, failure)
	if !newsOfSnapshot(&o.Status, status) {
		return nil
	}
	a.recordTransition(o, o.Status.Phase, status.Phase, status.Error, status.Conditions)
	a.recordHealth(o, o.Status.Conditions, status.Conditions)
	_, _, err := a.snapshots.WriteStatus(ctx, o, *status)
	return err
}

// snapshotStatus returns the status for the snapshot t, which is nil if there is none.
func snapshotStatus(o *v1beta1.Snapshot, t *backend.Snapshot, failure error) *v1beta1.SnapshotStatus {
	s := o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	r := report{exists: t != nil, deleting: o.DeletionTimestamp != nil, failure: failure, node: o.Spec.Node}
	if t != nil {
		convert.ShowSnapshot(s, t)
		s.Consistency = v1beta1.ConsistencyOn(o.Spec.Node)
		r.condition, r.usable = t.Condition, !t.Condition.Abnormal
	}
	s.Phase, s.Error = r.phase(), r.errorOf()
	r.conditions(&s.Conditions, o.Generation)
	s.SetColumns()
	return s
}

func newsOfSnapshot(old, now *v1beta1.SnapshotStatus) bool {
	if noticeable(v1beta1.Bytes(old.Used), v1beta1.Bytes(now.Used), v1beta1.Bytes(now.Size), smallChange) {
		return true
	}
	same := now.DeepCopy()
	same.Used, same.Columns.Used = old.Used, old.Columns.Used
	return !equality.Semantic.DeepEqual(old, same)
}
