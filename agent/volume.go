package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// errMissing means that the volume was created, by its object, and is not on the disk.
var errMissing = errors.New("missing from the disk")

func (a *Agent) reconcileVolume(ctx context.Context, k key) error {
	o := a.volumeObject(k.name)
	switch {
	case o == nil:
		a.volumes.Forget(k.name)
	case o.Unreadable() != nil:
		return a.reportUnreadable(ctx, k, o)
	}
	gone, err := a.carryOutRequests(ctx, k, o)
	switch {
	case err != nil:
		return err
	case gone:
		return nil // and the request of that object with it; the event of its end calls again
	case o == nil:
		return a.adoptVolume(ctx, k.id())
	case o.DeletionTimestamp != nil:
		return a.removeVolume(ctx, o)
	case o.DeletionRequested():
		return nil // the requester deletes the object next
	}
	return a.keepVolume(ctx, o)
}

// carryOutRequests does what spec.discard and spec.restore of the StorageNode request with a volume, and reports whether an object
// that is being deleted is gone by that.
func (a *Agent) carryOutRequests(ctx context.Context, k key, o *v1beta1.Volume) (gone bool, err error) {
	if err := a.endRestore(ctx, k, o); err != nil {
		return false, err
	}
	if err := a.discard(ctx, k, o, o != nil && o.Status.CreationTime != nil); err != nil {
		return false, err
	}
	restored, err := a.restore(ctx, k)
	return restored && o != nil && o.DeletionTimestamp != nil, err
}

// keepVolume makes the volume as its object specifies it, and reports it in the status.
func (a *Agent) keepVolume(ctx context.Context, o *v1beta1.Volume) error {
	o, err := a.volumes.AddFinalizer(ctx, o, v1beta1.AgentFinalizer) // before anything is created on disk
	if err != nil {
		return err
	}
	v, fresh, failure := a.realise(ctx, o)
	attached, other := a.lookAtClients(ctx, o, v)
	if ctx.Err() != nil {
		return ctx.Err() // interrupted: the state of the volume is unknown
	}
	err = a.recordVolume(ctx, o, v, attached, failure)
	if fresh && apierrors.IsNotFound(err) {
		// The volume was never reported, and a repeated request creates a new one.
		return a.Backend.Delete(ctx, backend.ID(o.Name))
	}
	return cmp.Or(err, retryable(failure), other)
}

// realise creates the volume on disk as the object specifies. fresh says that this call has created it.
func (a *Agent) realise(ctx context.Context, o *v1beta1.Volume) (v *backend.Volume, fresh bool, err error) {
	v, err = a.Backend.Get(ctx, backend.ID(o.Name))
	absent := errors.Is(err, backend.ErrNotFound)
	switch {
	case err != nil && !absent:
		return nil, false, err
	case absent && wasReal(o):
		return nil, false, a.lost(ctx, placeOf(o))
	case wasReal(o):
	case refusedForGood(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return nil, false, convert.ToError(o.Status.Error)
	case absent:
		if v, err = a.createVolume(ctx, o); err != nil {
			return nil, false, err
		}
	default: // created before a restart, or for another object
		if err := isOf(o, v); err != nil {
			return nil, false, err
		}
	}
	if err = a.complete(ctx, o, v); err == nil {
		v, err = a.grow(ctx, o, v)
	}
	return v, absent, err
}

// complete records on the disk that a pod has brought and verified the content, so that the volume is known to be whole without
// its object. Only after that the volume is populated, and used.
func (a *Agent) complete(ctx context.Context, o *v1beta1.Volume, v *backend.Volume) error {
	if !v.Incomplete || o.Spec.PopulatedBy == "" || o.LacksContent() {
		return nil
	}
	err := a.completer.Complete(ctx, v.ID)
	if err == nil {
		v.Incomplete = false
	}
	return err
}

// isOf says whether a volume that was found on disk is what the object specifies; it may have been created before the
// object requested a larger size.
func isOf(o *v1beta1.Volume, v *backend.Volume) error {
	spec := volumeSpec(o)
	spec.Size.Required = min(spec.Size.Required, v.Size)
	return v.Satisfies(spec, convert.ToSource(sourceOf(o)))
}

// sourceOf is what this agent makes the volume from. One that a pod populates is made empty.
func sourceOf(o *v1beta1.Volume) *v1beta1.SourceReference {
	if o.Spec.PopulatedBy == v1beta1.PopulatedByPod {
		return nil
	}
	return o.Spec.SourceRef
}

// volumeSpec leaves out the fields that chose the node: that a volume is shared, and by which server.
func volumeSpec(o *v1beta1.Volume) backend.VolumeSpec {
	spec := convert.ToVolumeSpec(&o.Spec)
	spec.Shared, spec.Server = false, ""
	spec.Ephemeral = spec.Labels[v1beta1.CopyLabel] != ""
	spec.Incomplete = o.Spec.PopulatedBy == v1beta1.PopulatedByPod
	return spec
}

func (a *Agent) createVolume(ctx context.Context, o *v1beta1.Volume) (*backend.Volume, error) {
	spec := volumeSpec(o)
	if err := checkName(o.Name, spec.Name); err != nil {
		return nil, err
	}
	source := sourceOf(o)
	switch {
	case source == nil:
		return a.Backend.Create(ctx, spec)
	case source.Kind == v1beta1.SourceSnapshot:
		return a.Backend.Restore(ctx, backend.ID(source.Name), spec)
	case source.Kind == v1beta1.SourceVolume:
		return a.Backend.Clone(ctx, backend.ID(source.Name), spec)
	}
	return nil, fmt.Errorf("%w volume %s: the storage of %s makes no volume from a %s", backend.ErrInvalid, o.Name, v1beta1.SiteOf(a.Node), source.Kind)
}

// checkName refuses an object whose name is not the ID derived from its spec.name.
func checkName(object, name string) error {
	id, err := backend.IDFor(name)
	if err == nil && string(id) != object {
		err = fmt.Errorf("%w object: metadata.name is %s, but with the spec.name %s it must be %s", backend.ErrInvalid, object, backend.Quote(name), id)
	}
	return err
}

// grow returns the volume even if it could not grow, since it can still be used.
func (a *Agent) grow(ctx context.Context, o *v1beta1.Volume, v *backend.Volume) (*backend.Volume, error) {
	want := convert.ToSize(o.Spec.Size)
	switch {
	case want.Required <= v.Size || v.Size == 0: // size 0: it is damaged, which is reported elsewhere
		return v, nil
	case refusedForGood(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return v, convert.ToError(o.Status.Error)
	}
	grown, err := a.Backend.Expand(ctx, v.ID, want)
	if err != nil {
		return v, err
	}
	return grown, nil
}

// refusedForGood says whether this generation of the spec was refused with a permanent error.
func refusedForGood(generation, observed int64, e *v1beta1.Error) bool {
	return generation == observed && backend.CodeOf(convert.ToError(e)).Permanent()
}

// retryable returns the part of an error that a retry may resolve. Errors that the next survey checks anyway are not
// retried earlier.
func retryable(err error) error {
	if err == nil || errors.Is(err, errMissing) || errors.Is(err, errPoolOut) || backend.CodeOf(err).Permanent() {
		return nil
	}
	return err
}

func adopted(o metav1.Object) bool { return o.GetLabels()[v1beta1.AdoptedLabel] != "" }

func wasReal(o *v1beta1.Volume) bool { return o.Status.CreationTime != nil || adopted(o) }

func placeOf(o *v1beta1.Volume) place {
	at := place{pool: o.PoolName(), id: o.Status.PoolID, lost: o.Status.Phase == v1beta1.PhaseLost}
	if access := o.Status.Access; access != nil {
		at.path = cmp.Or(access.Image, access.Directory)
	}
	return at
}
