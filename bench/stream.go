package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// source lists and watches objects of one kind; clients of client-go implement it.
type source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// event is a change with the time of its arrival.
type event struct {
	kind   watch.EventType
	object runtime.Object
	at     time.Time
}

// stream is a watch that resumes when the API server ends it. Unlike an informer, it does not keep all objects, and
// does not delay events in queues.
type stream[L runtime.Object] struct {
	name        string
	from        source[L]
	options     metav1.ListOptions // with the resource version of the last event
	tell        func(event)
	interrupted func(error) // called when the API server could not be watched
	watch       watch.Interface
	there       map[string]runtime.Object // reported objects that exist
}

// open starts the watch. It lists at most one existing object, since there may be thousands of volumes: the other
// objects of the run are created later, or are selected by name.
func (s *stream[L]) open(ctx context.Context) (err error) {
	s.there = map[string]runtime.Object{}
	one := s.options
	one.Limit = 1
	if err := s.list(ctx, one); err != nil {
		return err
	}
	s.options.AllowWatchBookmarks = true
	if s.watch, err = s.from.Watch(ctx, s.options); err != nil {
		return fmt.Errorf("watching %s: %w", s.name, err)
	}
	return nil
}

// list reports all existing objects, and those deleted since.
func (s *stream[L]) list(ctx context.Context, options metav1.ListOptions) error {
	list, err := s.from.List(ctx, options)
	if err != nil {
		return fmt.Errorf("listing %s: %w", s.name, err)
	}
	at, gone := time.Now(), maps.Clone(s.there)
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		delete(gone, nameOf(o))
		s.pass(event{watch.Added, o, at})
		return nil
	}); err != nil {
		return err
	}
	for _, o := range gone {
		s.pass(event{watch.Deleted, o, at})
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	s.options.ResourceVersion = of.GetResourceVersion()
	return nil
}

// retryDelay is the delay before a retry.
const retryDelay = 100 * time.Millisecond

// run reports all changes until ctx ends.
func (s *stream[L]) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.renew(ctx, s.read(ctx))
	}
}

// renew watches again after the last watch ended, perhaps with an error. If the API server does not have the changes
// since then, such as after a restart, it lists all objects.
func (s *stream[L]) renew(ctx context.Context, err error) {
	for ctx.Err() == nil {
		if err != nil {
			s.interrupted(fmt.Errorf("watching %s: %w", s.name, err))
			pause(ctx, retryDelay)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			all := s.options
			all.ResourceVersion, all.AllowWatchBookmarks = "", false
			if failed := s.list(ctx, all); failed != nil {
				continue
			}
		}
		if s.watch, err = s.from.Watch(ctx, s.options); err == nil {
			return
		}
	}
}

// read reports events until the watch ends, which is normal after a while.
func (s *stream[L]) read(ctx context.Context) error {
	defer s.watch.Stop()
	defer context.AfterFunc(ctx, s.watch.Stop)()
	for e := range s.watch.ResultChan() {
		at := time.Now()
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		object, ok := e.Object.(metav1.Object)
		if !ok {
			return errors.New("the API server sent something that is not an object")
		}
		if version := object.GetResourceVersion(); version != "" {
			s.options.ResourceVersion = version
		}
		if e.Type != watch.Bookmark {
			s.pass(event{e.Type, e.Object, at})
		}
	}
	return nil
}

// pass reports an event and updates the existing objects.
func (s *stream[L]) pass(e event) {
	if e.kind == watch.Deleted {
		delete(s.there, nameOf(e.object))
	} else {
		s.there[nameOf(e.object)] = e.object
	}
	s.tell(e)
}

func nameOf(o runtime.Object) string {
	object, ok := o.(metav1.Object)
	if !ok {
		return ""
	}
	return object.GetNamespace() + "/" + object.GetName()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
