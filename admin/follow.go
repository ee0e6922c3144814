package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

var errTimeout = errors.New("it has not finished")

const retryEvery = time.Second

type followed struct {
	name  string
	get   func(context.Context) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

type reader[T runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func following[T runtime.Object](client reader[T], name string) followed {
	return followed{name, func(ctx context.Context) (runtime.Object, error) { return client.Get(ctx, name, metav1.GetOptions{}) }, client.Watch}
}

// step returns whether the wait is over, and otherwise what the command waits for. The object is nil if it does not
// exist.
type step func(o runtime.Object) (done bool, state string, err error)

// follow calls step with the current object and after every change. It shows each new state as progress. It continues
// when the API server is unavailable for a while.
func (a *Admin) follow(ctx context.Context, f followed, s step) error {
	last, shown := "", ""
	look := func(o runtime.Object) (bool, error) {
		done, state, err := s(o)
		if last = state; !done && err == nil && state != shown {
			shown = state
			err = a.Progress("waiting: " + state)
		}
		return done, err
	}
	for {
		done, err := watchOnce(ctx, f, look)
		switch {
		case done:
			return err
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
			return fmt.Errorf("%w in time: %s", errTimeout, last)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			last = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// watchOnce returns when look returns true or an error, or when the watch ends, with the cause.
func watchOnce(ctx context.Context, f followed, look func(runtime.Object) (bool, error)) (over bool, err error) {
	// The watch starts before the first read, so that no change in between is missed.
	w, err := f.watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + f.name})
	if err != nil {
		return final(err), err
	}
	defer w.Stop()
	o, err := f.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		o = nil
	case err != nil:
		return final(err), err
	}
	for {
		if done, err := look(o); done || err != nil {
			return true, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case e, open := <-w.ResultChan():
			switch {
			case !open:
				return false, nil
			case e.Type == watch.Error:
				return false, apierrors.FromObject(e.Object)
			case e.Type == watch.Deleted:
				o = nil
			case e.Type != watch.Bookmark:
				o = e.Object
			}
		}
	}
}

// final returns whether a repeated request would fail again.
func final(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err)
}

func (a *Admin) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, a.Timeout, errTimeout)
}
