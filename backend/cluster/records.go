package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// records are the objects of one kind: the cache, the API, and the waiting calls.
type records[T object] struct {
	kind   v1beta1.SourceKind
	client interface {
		Create(context.Context, T, metav1.CreateOptions) (T, error)
		Get(context.Context, string, metav1.GetOptions) (T, error)
		Delete(context.Context, string, metav1.DeleteOptions) error
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
	}
	look func(T) state
	*inflight[T]
}

// word is the kind in messages.
func (r *records[T]) word() string { return strings.ToLower(string(r.kind)) }

// state is what Volumes and Snapshots have in common.
type state struct {
	name     string
	node     string
	phase    v1beta1.Phase
	made     bool // it was created on disk once, with all of its content
	deleting bool
	request  *v1beta1.DeletionRequest // nil unless the deletion of its data is requested
	observed bool                     // the agent has handled this generation
	err      *v1beta1.Error
	born     time.Time
	ready    *metav1.Condition
	copying  string // how far a pod has brought the content of a volume that is on disk; empty for all others

	unreadable error // the object could not be decoded
}

// away says whether the data cannot be used now: its pool or node is out of reach, or it is lost.
func (s state) away() bool {
	return s.phase == v1beta1.PhaseUnreachable || s.phase == v1beta1.PhaseLost
}

// isGone says whether the node will not come back, as the volume controller has found out.
func (s state) isGone() bool { return s.ready != nil && s.ready.Reason == v1beta1.ReasonNodeGone }

// String formats the state for messages.
func (s state) String() string {
	phase := s.phase
	if phase == "" {
		phase = v1beta1.PhasePending
	}
	if s.deleting {
		phase = v1beta1.PhaseDeleting
	}
	return fmt.Sprintf("%s is %s on node %s and %s old", s.name, phase, s.node, time.Since(s.born).Round(time.Millisecond))
}

// failure is why the agent failed to reconcile the current spec.
func (s state) failure() error {
	if s.err == nil || s.err.Code == v1beta1.ErrorBusy || !s.observed && !s.deleting || s.deleting && s.phase != v1beta1.PhaseDeleting {
		return nil
	}
	return convert.ToError(s.err)
}

// find returns an object from the cache or, since another replica may have written it just now, from the API server.
func (r *records[T]) find(ctx context.Context, id backend.ID) (T, error) {
	var none T
	if o := r.cached(string(id)); o != none {
		return o, r.readable(o)
	}
	o, err := r.client.Get(ctx, string(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !kindIsGone(err) {
		return none, fmt.Errorf("%w: %s %s", backend.ErrNotFound, r.kind, id)
	}
	if err != nil {
		return none, r.refused(id, err)
	}
	return o, r.readable(o)
}

// readable refuses an object that cannot be decoded: writing it back would lose fields.
func (r *records[T]) readable(o T) error {
	if ours, is := any(o).(v1beta1.Object); is && ours.Unreadable() != nil {
		return fmt.Errorf("%w: the object of %s %s cannot be read, so it is not changed: %w", backend.ErrUnavailable, r.kind, o.GetName(), ours.Unreadable())
	}
	return nil
}

// write creates the object, or shares the existing one with all calls.
func (r *records[T]) write(ctx context.Context, c *call[T], o T) error {
	made, err := r.client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return r.refresh(ctx, c)
	}
	if err != nil {
		return r.refused(backend.ID(o.GetName()), err)
	}
	c.learn(made)
	return nil
}

// refresh reads the object from the API server.
func (r *records[T]) refresh(ctx context.Context, c *call[T]) error {
	o, err := r.client.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !kindIsGone(err) {
		var none T
		if o := c.newest(); o != none {
			c.vanish(o.GetUID())
		}
		return nil
	}
	if err != nil {
		return r.refused(backend.ID(c.name), err)
	}
	c.learn(o)
	return nil
}

// newRequest returns the request that must be in the spec of an object before its data is removed.
func newRequest(o metav1.Object, reason string) *v1beta1.DeletionRequest {
	return v1beta1.NewDeletionRequest(o.GetUID(), FieldManager, reason)
}

// remove requests the deletion of an object and its data if the object is unchanged since the caller read it, and says
// whether it was.
func (r *records[T]) remove(ctx context.Context, c *call[T], o T, reason string) (bool, error) {
	return r.drop(ctx, c, o, reason, o.GetResourceVersion())
}

// removeAny requests the deletion of an object and its data even if the object has changed.
func (r *records[T]) removeAny(ctx context.Context, c *call[T], o T, reason string) error {
	_, err := r.drop(ctx, c, o, reason, "")
	return err
}

// drop writes the request before it deletes the object: without it, the data would stay. If a version is given, it must be
// the object's.
func (r *records[T]) drop(ctx context.Context, c *call[T], o T, reason, version string) (bool, error) {
	if err := r.readable(o); err != nil {
		return false, err
	}
	uid := o.GetUID()
	if r.look(o).request == nil {
		requested, err := r.mergeAt(ctx, o, version, map[string]any{"spec": map[string]any{"deletion": newRequest(o, reason)}})
		switch {
		case apierrors.IsNotFound(err) && !kindIsGone(err):
			c.vanish(uid)
			return true, nil
		case apierrors.IsConflict(err), apierrors.IsInvalid(err): // changed in between, perhaps by the request of another process
			return false, r.refresh(ctx, c)
		case err != nil:
			return false, r.refused(backend.ID(o.GetName()), err)
		}
		c.learn(requested)
		o = requested
	}
	if o.GetDeletionTimestamp() == nil {
		err := r.client.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		switch {
		case apierrors.IsNotFound(err) && !kindIsGone(err):
			c.vanish(uid)
			return true, nil
		case apierrors.IsConflict(err):
			return false, r.refresh(ctx, c)
		case err != nil:
			return false, r.refused(backend.ID(o.GetName()), err)
		}
	}
	c.drop(uid)
	return true, nil
}

// kindIsGone says whether the kind itself was not found, which proves nothing about the data.
func kindIsGone(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "")
}

// seen waits until the cache shows that an object is being deleted, so that no later call returns it.
func (r *records[T]) seen(ctx context.Context, c *call[T], uid types.UID) {
	var none T
	for {
		o := r.cached(c.name)
		if o == none || o.GetUID() != uid || o.GetDeletionTimestamp() != nil || c.wait(ctx) != nil {
			return
		}
	}
}

// awaitLeave waits for a change of an object of a requested name that is being deleted, unless that cannot end now.
func (r *records[T]) awaitLeave(ctx context.Context, c *call[T], s state, down string) error {
	switch {
	case down != "":
		return fmt.Errorf("%w: %s %s is being deleted on %s, which is down: %s", backend.ErrUnavailable, r.word(), c.name, v1beta1.SiteOf(s.node), down)
	case s.made && s.failure() != nil:
		return fmt.Errorf("%s %s is being deleted: %w", r.word(), c.name, s.failure())
	}
	return c.wait(ctx)
}

// awaitGone waits until deleted objects have left the cache, so that no later list has them.
func (r *records[T]) awaitGone(ctx context.Context, c *call[T]) {
	var none T
	for {
		o := r.cached(c.name)
		if o == none || !c.isGone(o.GetUID()) || c.wait(ctx) != nil {
			return
		}
	}
}

// merge patches an object that is unchanged since the caller read it.
func (r *records[T]) merge(ctx context.Context, o T, patch map[string]any) (T, error) {
	return r.mergeAt(ctx, o, o.GetResourceVersion(), patch)
}

// mergeAt patches an object that still has that resource version; empty means any.
func (r *records[T]) mergeAt(ctx context.Context, o T, version string, patch map[string]any) (T, error) {
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"] = o.GetUID()
	if version != "" {
		meta["resourceVersion"] = version
	}
	patch["metadata"] = meta
	if err := r.readable(o); err != nil {
		return o, err
	}
	return kube.MergePatch(ctx, r.client.Patch, o.GetName(), patch, FieldManager)
}

// removeFinalizer removes the finalizer of the agent from an object that is being deleted, which completes the deletion.
func (r *records[T]) removeFinalizer(ctx context.Context, o T) error {
	rest := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == v1beta1.AgentFinalizer })
	_, err := r.merge(ctx, o, map[string]any{"metadata": map[string]any{"finalizers": rest}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// refused translates an error of the API server.
func (r *records[T]) refused(id backend.ID, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the call on %s %s ended before the API server answered: %w", backend.ErrBusy, r.kind, id, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%w %s %s: %w", backend.ErrInvalid, r.kind, id, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %s %s was changed by another client; retry: %w", backend.ErrBusy, r.kind, id, err)
	case kindIsGone(err):
		return fmt.Errorf("%w: %s %s: the API server does not have the kinds of Holdfast; install them again and what is on the disks comes back: %w", backend.ErrUnavailable, r.kind, id, err)
	}
	return fmt.Errorf("%w: the API server refused a request for %s %s: %w", backend.ErrUnavailable, r.kind, id, err)
}

// busy explains to a caller whose time is over what is still running.
func (r *records[T]) busy(c *call[T], cause error) error {
	var none T
	o := c.newest()
	if o == none {
		return fmt.Errorf("%w: the call on %s %s ended before it started: %w", backend.ErrBusy, r.kind, c.name, cause)
	}
	s := r.look(o)
	last := ""
	if s.copying != "" {
		last = "; " + s.copying
	}
	if s.err != nil {
		last = "; its last error: " + s.err.Message
	}
	return fmt.Errorf("%w: %s %s; it continues, retry%s", backend.ErrBusy, r.kind, s, last)
}
