package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// Get returns a volume that was created, even if its node or disk is lost now, or its content is still being copied.
func (b *Backend) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	o, err := b.volumes.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !isOnDisk(o) {
		return nil, fmt.Errorf("%w: volume %s, which is not made yet", backend.ErrNotFound, volumeState(o))
	}
	return b.volume(o), nil
}

func (b *Backend) List(context.Context) ([]*backend.Volume, error) {
	var all []*backend.Volume
	for _, o := range b.allVolumes() {
		if isOnDisk(o) {
			all = append(all, b.volume(o))
		}
	}
	slices.SortFunc(all, func(x, y *backend.Volume) int { return cmp.Compare(x.ID, y.ID) })
	return all, nil
}

// Delete requests the deletion of the object and waits until the agent has removed its finalizer. Once it is requested,
// the agent retries it, even if this call returns an error.
func (b *Backend) Delete(ctx context.Context, id backend.ID) error {
	return remove(ctx, b, b.volumes, id, func(o *v1beta1.Volume) error { return cmp.Or(b.unbound(ctx, o), b.unused(o)) })
}

// remove deletes an object and its data, unless check refuses, and waits until the object is gone.
func remove[T object](ctx context.Context, b *Backend, r *records[T], id backend.ID, check func(T) error) error {
	c := r.join(string(id))
	defer c.leave()
	return await(ctx, r, c, func(o T) (bool, error) {
		s := r.look(o)
		down := b.liveness.down(s.node)
		switch {
		case !c.asked(o) && (s.request == nil || !s.deleting):
			if err := check(o); err != nil {
				return false, err
			}
			return false, r.removeAny(ctx, c, o, "the "+r.word()+" was deleted by its caller")
		case r.kind == v1beta1.SourceVolume && GivenUp(o): // it is held by its claim
			return false, nil
		case down != "" && !s.made:
			return false, rollBack(ctx, b, r, c, o, "the "+r.word()+" was deleted before it was made")
		case down != "":
			return false, fmt.Errorf("%w: %s %s is on %s, which is down: %s; it will be deleted %s",
				backend.ErrUnavailable, r.word(), id, v1beta1.SiteOf(s.node), down, deletedWhen(s.node))
		}
		return false, s.failure()
	})
}

// RemoveUnused requests the deletion of a volume and its data, unless the object has changed since the caller read it.
func (b *Backend) RemoveUnused(ctx context.Context, v *v1beta1.Volume, reason string) error {
	c := b.volumes.join(v.Name)
	defer c.leave()
	_, err := b.volumes.remove(ctx, c, v, reason)
	return err
}

// PatchVolume merges a patch into the object of a volume that is unchanged since the caller read it, and returns the
// result. It refuses an object that cannot be decoded.
func (b *Backend) PatchVolume(ctx context.Context, v *v1beta1.Volume, patch map[string]any) (*v1beta1.Volume, error) {
	return b.volumes.merge(ctx, v, patch)
}

// FinishDeletions deletes objects with a deletion request older than after, which a process left that was killed in
// between.
func (b *Backend) FinishDeletions(ctx context.Context, after time.Duration) error {
	var errs []error
	for _, v := range b.allVolumes() {
		if abandoned(volumeState(v), after) {
			errs = append(errs, finish(ctx, b.volumes, v))
		}
	}
	for _, s := range b.allSnapshots() {
		if abandoned(snapshotState(s), after) {
			errs = append(errs, finish(ctx, b.snapshots, s))
		}
	}
	return errors.Join(errs...)
}

func abandoned(s state, after time.Duration) bool {
	return s.request != nil && !s.deleting && time.Since(s.request.RequestedAt.Time) > after
}

func finish[T object](ctx context.Context, r *records[T], o T) error {
	c := r.join(o.GetName())
	defer c.leave()
	return r.removeAny(ctx, c, o, "")
}

// await calls step with each state of an object until step is done or fails, or the object is gone.
func await[T object](ctx context.Context, r *records[T], c *call[T], step func(T) (bool, error)) error {
	var none T
	if c.newest() == none {
		if err := r.refresh(ctx, c); err != nil { // the cache may not have it yet
			return err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return r.busy(c, err)
		}
		o := c.newest()
		if o == none {
			r.awaitGone(ctx, c)
			return nil
		}
		if err := r.readable(o); err != nil {
			return err
		}
		if done, err := step(o); done || err != nil {
			return err
		}
		if err := c.wait(ctx); err != nil {
			return r.busy(c, err)
		}
	}
}

// Expand raises the size in the object's spec and waits until the agent has grown the volume. A size that cannot be met is
// reverted, so that the volume does not grow later.
func (b *Backend) Expand(ctx context.Context, id backend.ID, size backend.Size) (grown *backend.Volume, err error) {
	c := b.volumes.join(string(id))
	defer c.leave()
	var asked int64 // the generation that has this call's size
	err = await(ctx, b.volumes, c, func(o *v1beta1.Volume) (bool, error) {
		s := volumeState(o)
		down := b.liveness.down(s.node)
		switch {
		case !s.made || s.deleting:
			return false, fmt.Errorf("%w: volume %s", backend.ErrNotFound, s)
		case s.away(), down != "":
			return false, fmt.Errorf("%w: volume %s cannot grow now: %s", backend.ErrUnavailable, id, b.condition(s, o.Status.Conditions).Message)
		}
		want, err := growth(o, size)
		switch {
		case err != nil:
			return false, fmt.Errorf("volume %s: %w", id, err)
		case want == v1beta1.Bytes(o.Status.Size):
			grown = b.volume(o)
			return true, nil
		case asked == 0:
			asked, err = b.ask(ctx, c, o, want, size.Limit)
			return false, err
		case o.Status.ObservedGeneration < asked:
			return false, nil
		case o.Status.Error != nil:
			return false, b.takeBack(ctx, c, o, s.failure())
		case v1beta1.Bytes(o.Status.Size) >= want:
			grown = b.volume(o)
			return true, nil
		}
		return false, nil
	})
	if err == nil && grown == nil {
		err = fmt.Errorf("%w: volume %s", backend.ErrNotFound, id)
	}
	return grown, err
}

// growth returns the size that a volume should have.
func growth(o *v1beta1.Volume, size backend.Size) (int64, error) {
	now := v1beta1.Bytes(o.Status.Size)
	size.Required = cmp.Or(size.Required, now)
	return size.Choose(now, 1)
}

// ask writes the requested size. A request that failed before, and was not reverted, is reverted first: the same size
// again would not be a change.
func (b *Backend) ask(ctx context.Context, c *call[*v1beta1.Volume], o *v1beta1.Volume, want, limit int64) (int64, error) {
	if v1beta1.Bytes(o.Spec.Size.Required) >= want && o.Status.Error != nil && o.Status.ObservedGeneration == o.Generation {
		var err error
		if o, err = b.resize(ctx, c, o, map[string]any{"required": o.Status.Size}); err != nil || o == nil {
			return 0, err
		}
	}
	if v1beta1.Bytes(o.Spec.Size.Required) == want {
		return o.Generation, nil // another call has asked
	}
	size := convert.FromSize(backend.Size{Required: want, Limit: limit})
	o, err := b.resize(ctx, c, o, map[string]any{"required": size.Required, "limit": size.Limit})
	if err != nil || o == nil {
		return 0, err
	}
	return o.Generation, nil
}

// resize changes the size in the spec; it returns nil when the object was changed by another client in between.
func (b *Backend) resize(ctx context.Context, c *call[*v1beta1.Volume], o *v1beta1.Volume, size map[string]any) (*v1beta1.Volume, error) {
	next, err := b.volumes.merge(ctx, o, map[string]any{"spec": map[string]any{"size": size}})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, b.volumes.refresh(ctx, c)
	case err != nil:
		return nil, b.volumes.refused(backend.ID(o.Name), err)
	}
	c.learn(next)
	return next, nil
}

// takeBack sets the size in the spec to what the volume has.
func (b *Backend) takeBack(ctx context.Context, c *call[*v1beta1.Volume], o *v1beta1.Volume, why error) error {
	if why == nil {
		return nil // it is being retried
	}
	if _, err := b.resize(ctx, c, o, map[string]any{"required": o.Status.Size}); err != nil {
		return fmt.Errorf("%w; and the requested size could not be reverted: %v", why, err)
	}
	return why
}
