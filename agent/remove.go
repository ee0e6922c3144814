package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/agent/policy"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func owned(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), v1.AgentFinalizer) }

func unowned(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == v1.AgentFinalizer })
}

// removeVolume takes the volume off the disk, where that is requested, and lets the object go. A refusal is recorded and
// tried again.
func (a *Agent) removeVolume(ctx context.Context, o *v1.Volume) error {
	if !owned(o) {
		return nil
	}
	k := key{v1.SourceVolume, o.Name}
	requested, err := a.requested(k, o)
	if err == nil && !requested {
		a.tellForgotten(o, k, o.Spec.Claim)
		return a.releaseVolume(ctx, o)
	}
	if err == nil {
		err = a.deleteVolume(ctx, o)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errors.Join(a.recordVolume(ctx, o, nil, err), err)
	}
	a.log.Info("deleted", "kind", v1.SourceVolume, "id", o.Name, "requestedBy", o.Spec.Deletion.RequestedBy, "reason", o.Spec.Deletion.Reason)
	return a.releaseVolume(ctx, o)
}

// mirror is a Volume or a Snapshot.
type mirror interface{ DeletionRequested() bool }

// requested says whether the controller has asked for the data of an object to be deleted.
func (a *Agent) requested(k key, o mirror) (bool, error) {
	if !o.DeletionRequested() {
		return false, nil
	}
	return a.heard(k)
}

// heard says whether a request to delete data is the controller's: where the API server does not keep others from asking,
// nobody has asked. An error says that this is not known yet.
func (a *Agent) heard(k key) (bool, error) {
	if a.Requests == nil {
		return true, nil
	}
	why := a.Requests.Refusal()
	switch {
	case errors.Is(why, policy.ErrNotYet):
		return false, why
	case why != nil:
		a.log.Warn("a request to delete data is not obeyed", "kind", k.kind, "id", k.name, "reason", why)
	}
	return why == nil, nil
}

// releaseVolume lets the object go.
func (a *Agent) releaseVolume(ctx context.Context, o *v1.Volume) error {
	o = o.DeepCopy()
	o.Finalizers = unowned(o)
	written, err := a.Client.HoldfastV1().Volumes().Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	a.work.wrote(key{v1.SourceVolume, o.Name}, written)
	return nil
}

// deleteVolume leaves alone what the object asked for but never was: another volume that has its name. What was real
// and is in no pool that can be looked into is not taken for deleted.
func (a *Agent) deleteVolume(ctx context.Context, o *v1.Volume) error {
	id := backend.ID(o.Name)
	v, err := a.Backend.Get(ctx, id)
	switch {
	case !wasReal(o) && err == nil && errors.Is(isOf(o, v), backend.ErrExists):
		return nil
	case wasReal(o) && errors.Is(err, backend.ErrNotFound):
		if err := a.lost(ctx, placeOf(o)); !errors.Is(err, errMissing) {
			return waitsForPool(err)
		}
	}
	return ended(a.Backend.Delete(ctx, id), func() error { _, err := a.Backend.Get(ctx, id); return err })
}

// waitsForPool says of what is being deleted that its pool is out of reach.
func waitsForPool(err error) error {
	if errors.Is(err, errPoolOut) {
		return fmt.Errorf("its deletion waits for its pool: %w", err)
	}
	return err
}

// ended is the outcome of a deletion of what never was, or is missing from the pool that had it. That it may lie in a
// pool that is out of reach as well, as the backend says, is known better here.
func ended(err error, look func() error) error {
	if errors.Is(err, backend.ErrUnavailable) && errors.Is(look(), backend.ErrNotFound) {
		return nil
	}
	return err
}
