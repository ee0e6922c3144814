package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

func owned(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), v1beta1.AgentFinalizer) }

// removeVolume deletes the volume from the disk if that is requested, and then removes the finalizer. A refusal is
// recorded and retried.
func (a *Agent) removeVolume(ctx context.Context, o *v1beta1.Volume) error {
	if !owned(o) {
		return nil
	}
	k := key{v1beta1.SourceVolume, o.Name}
	requested, err := a.requested(k, o)
	switch {
	case err != nil:
	case requested:
		live, failure := a.Client.HoldfastV1beta1().Volumes().Get(ctx, o.Name, metav1.GetOptions{})
		if still, err := confirmed(o, live, failure); !still {
			return err
		}
		err = a.deleteVolume(ctx, o)
	default:
		if err = a.completeForgotten(ctx, o); err == nil {
			a.recordForgotten(o, k, o.Spec.ClaimRef.String())
			return a.releaseVolume(ctx, o)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errors.Join(a.recordVolume(ctx, o, nil, o.SeenAttached(), err), err)
	}
	a.log.Info("deleted", "kind", v1beta1.SourceVolume, "id", o.Name, "requestedBy", o.Spec.Deletion.RequestedBy, "reason", o.Spec.Deletion.Reason)
	return a.releaseVolume(ctx, o)
}

// completeForgotten is the last chance to record on the disk that a pod has brought the content: only the object says so, and
// without it the volume, which is in use, would be found as incomplete.
func (a *Agent) completeForgotten(ctx context.Context, o *v1beta1.Volume) error {
	if o.Spec.PopulatedBy == "" || o.LacksContent() {
		return nil
	}
	v, err := a.Backend.Get(ctx, backend.ID(o.Name))
	switch {
	case errors.Is(err, backend.ErrNotFound):
		if err := a.lost(ctx, placeOf(o)); !errors.Is(err, errMissing) {
			return waitsForPool(err)
		}
		return nil
	case err != nil:
		return err
	}
	return a.complete(ctx, o, v)
}

// mirror is a Volume or a Snapshot.
type mirror interface {
	metav1.Object
	DeletionRequested() bool
}

// confirmed says whether the live object requests the deletion as well, before data is deleted. The cache may show an
// object that is gone, while the disk has another volume of that name: one that was restored, or created since.
func confirmed(cached, live mirror, err error) (bool, error) {
	if err != nil {
		return false, kube.IgnoreNotFound(err)
	}
	return live.GetUID() == cached.GetUID() && live.GetDeletionTimestamp() != nil && live.DeletionRequested() && owned(live), nil
}

// requested says whether the controller has requested the deletion of an object's data.
func (a *Agent) requested(k key, o mirror) (bool, error) {
	if !o.DeletionRequested() {
		return false, nil
	}
	return a.heard(k)
}

// heard says whether a request to delete data counts: only where the API server refuses requests by others than the
// controller. An error means that this is not known yet.
func (a *Agent) heard(k key) (bool, error) {
	if a.Requests == nil {
		return true, nil
	}
	why := a.Requests.Refusal()
	switch {
	case errors.Is(why, policy.ErrNotYet):
		return false, why
	case why != nil:
		a.log.Warn("a request to delete data is not carried out", "kind", k.kind, "id", k.name, "reason", why)
	}
	return why == nil, nil
}

// releaseVolume removes the finalizer of the object.
func (a *Agent) releaseVolume(ctx context.Context, o *v1beta1.Volume) error {
	return kube.IgnoreNotFound(a.volumes.RemoveFinalizer(ctx, o, v1beta1.AgentFinalizer))
}

// deleteVolume does not delete the volume of another object with the same name, if the object's own was never created,
// or was created earlier, nor one that is complete where the object has only a failed copy. A volume that existed and is
// in no readable pool does not count as deleted.
func (a *Agent) deleteVolume(ctx context.Context, o *v1beta1.Volume) error {
	id := backend.ID(o.Name)
	v, err := a.Backend.Get(ctx, id)
	switch {
	case !wasReal(o) && err == nil && errors.Is(isOf(o, v), backend.ErrExists):
		return nil
	case err == nil && createdAfter(v.Created, o.Status.CreationTime):
		a.log.Warn("not deleted: the volume was created after the one of the object that is deleted", "id", o.Name, "created", v.Created, "object", o.UID)
		return nil
	case err == nil && !v.Incomplete && o.LacksContent():
		a.log.Warn("not deleted: "+putBack, "id", o.Name, "object", o.UID)
		return nil
	case wasReal(o) && errors.Is(err, backend.ErrNotFound):
		if err := a.lost(ctx, placeOf(o)); !errors.Is(err, errMissing) {
			return waitsForPool(err)
		}
	}
	return ended(a.Delete(ctx, id), func() error { _, err := a.Backend.Get(ctx, id); return err })
}

// createdAfter says whether what is on the disk is younger than what an object was written for. Objects have microseconds.
func createdAfter(created time.Time, recorded *metav1.MicroTime) bool {
	return recorded != nil && created.Truncate(time.Microsecond).After(recorded.Time)
}

// waitsForPool reports that a deletion waits for its pool, which is out of reach.
func waitsForPool(err error) error {
	if errors.Is(err, errPoolOut) {
		return fmt.Errorf("its deletion waits for its pool: %w", err)
	}
	return err
}

// ended handles the deletion of an entry that was never created, or is missing from its pool. The backend cannot rule
// out a pool that is out of reach, but the recorded pool can.
func ended(err error, look func() error) error {
	if errors.Is(err, backend.ErrUnavailable) && errors.Is(look(), backend.ErrNotFound) {
		return nil
	}
	return err
}
