package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// errMissing: the object says that it was made, and the disk does not have it.
var errMissing = errors.New("missing from the disk")

func (a *Agent) settleVolume(ctx context.Context, k key) error {
	o := a.volumeObject(k.name)
	switch {
	case o == nil:
		a.work.forget(k)
	case a.work.unseen(k, o):
		return errUnseen
	case o.Unreadable() != nil:
		return a.tellUnreadable(ctx, k, o)
	}
	if err := a.endRestore(ctx, k, o); err != nil {
		return err
	}
	if err := a.discard(ctx, k, o, o != nil && o.Status.Created != nil); err != nil {
		return err
	}
	if err := a.restore(ctx, k); err != nil {
		return err
	}
	switch {
	case o == nil:
		return a.adoptVolume(ctx, k.id())
	case o.DeletionTimestamp != nil:
		return a.removeVolume(ctx, o)
	case o.DeletionRequested():
		return nil // whoever has requested it deletes the object next
	}
	o, err := a.ownVolume(ctx, o)
	if err != nil {
		return err
	}
	v, fresh, err := a.realise(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err() // cut short, which says nothing about the volume
	}
	if err := a.recordVolume(ctx, o, v, err); err != nil {
		if fresh && apierrors.IsNotFound(err) {
			// Nobody knows of it, and whoever asks again asks for a new one.
			return a.Backend.Delete(ctx, k.id())
		}
		return err
	}
	return retryable(err)
}

// ownVolume puts the finalizer on an object that came without, before anything is made on disk.
func (a *Agent) ownVolume(ctx context.Context, o *v1.Volume) (*v1.Volume, error) {
	if owned(o) {
		return o, nil
	}
	o = o.DeepCopy()
	o.Finalizers = append(o.Finalizers, v1.AgentFinalizer)
	written, err := a.Client.HoldfastV1().Volumes().Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, err
	}
	a.work.wrote(key{v1.SourceVolume, o.Name}, written)
	return written, nil
}

// realise makes sure that the volume is on disk as the object wants it. fresh says that this call has made it.
func (a *Agent) realise(ctx context.Context, o *v1.Volume) (v *backend.Volume, fresh bool, err error) {
	v, err = a.Backend.Get(ctx, backend.ID(o.Name))
	absent := errors.Is(err, backend.ErrNotFound)
	switch {
	case err != nil && !absent:
		return nil, false, err
	case absent && wasReal(o):
		return nil, false, a.lost(ctx, placeOf(o))
	case wasReal(o):
	case settled(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return nil, false, convert.ToError(o.Status.Error)
	case absent:
		if v, err = a.makeVolume(ctx, o); err != nil {
			return nil, false, err
		}
	default: // made before a restart, or another's
		if err := isOf(o, v); err != nil {
			return nil, false, err
		}
	}
	v, err = a.grow(ctx, o, v)
	return v, absent, err
}

// isOf says whether a volume that was found on disk is what the object asks for; it may have been made before the
// object asked for more.
func isOf(o *v1.Volume, v *backend.Volume) error {
	spec := volumeSpec(o)
	spec.Size.Required = min(spec.Size.Required, v.Size)
	return v.Satisfies(spec, convert.ToSource(o.Spec.Source))
}

// volumeSpec leaves out what chose the node: that a volume is shared, and by which server.
func volumeSpec(o *v1.Volume) backend.VolumeSpec {
	spec := convert.ToVolumeSpec(&o.Spec)
	spec.Shared, spec.Server = false, ""
	return spec
}

func (a *Agent) makeVolume(ctx context.Context, o *v1.Volume) (*backend.Volume, error) {
	spec := volumeSpec(o)
	if err := checkName(o.Name, spec.Name); err != nil {
		return nil, err
	}
	source := o.Spec.Source
	switch {
	case source == nil:
		return a.Backend.Create(ctx, spec)
	case source.Kind == v1.SourceSnapshot && a.snapshotter != nil:
		return a.snapshotter.Restore(ctx, backend.ID(source.Name), spec)
	case source.Kind == v1.SourceVolume && a.cloner != nil:
		return a.cloner.Clone(ctx, backend.ID(source.Name), spec)
	}
	return nil, fmt.Errorf("%w volume %s: the storage of node %s makes no volume from a %s", backend.ErrInvalid, o.Name, a.Node, source.Kind)
}

// checkName refuses an object whose name is not the ID that its spec.name makes.
func checkName(object, name string) error {
	id, err := backend.IDFor(name)
	if err == nil && string(id) != object {
		err = fmt.Errorf("%w object: metadata.name is %s, but with the spec.name %s it must be %s", backend.ErrInvalid, object, backend.Quote(name), id)
	}
	return err
}

// grow returns the volume even when it could not grow: it can be used as it is.
func (a *Agent) grow(ctx context.Context, o *v1.Volume, v *backend.Volume) (*backend.Volume, error) {
	want := convert.ToSize(o.Spec.Size)
	switch {
	case want.Required <= v.Size || v.Size == 0: // the latter: damaged, which is told otherwise
		return v, nil
	case settled(o.Generation, o.Status.ObservedGeneration, o.Status.Error):
		return v, convert.ToError(o.Status.Error)
	case a.expander == nil:
		return v, fmt.Errorf("%w volume %s: the storage of node %s cannot grow volumes", backend.ErrInvalid, o.Name, a.Node)
	}
	grown, err := a.expander.Expand(ctx, v.ID, want)
	if err != nil {
		return v, err
	}
	return grown, nil
}

// settled says whether the spec as it is was answered with an error that trying again cannot mend.
func settled(generation, observed int64, e *v1.Error) bool {
	return generation == observed && backend.CodeOf(convert.ToError(e)).Permanent()
}

// retryable leaves of an error what trying again may mend. What the next survey looks at anyway is not tried before.
func retryable(err error) error {
	if err == nil || errors.Is(err, errMissing) || errors.Is(err, errPoolOut) || backend.CodeOf(err).Permanent() {
		return nil
	}
	return err
}

func adopted(o metav1.Object) bool { return o.GetLabels()[v1.AdoptedLabel] != "" }

func wasReal(o *v1.Volume) bool { return o.Status.Created != nil || adopted(o) }

func placeOf(o *v1.Volume) place {
	at := place{pool: o.PoolName(), id: o.Status.PoolID, lost: o.Status.Phase == v1.PhaseLost}
	if access := o.Status.Access; access != nil {
		at.path = cmp.Or(access.Image, access.Directory)
	}
	return at
}
