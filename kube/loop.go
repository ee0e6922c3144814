package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// The back-off of a key whose runs fail, unless the configuration says otherwise.
const (
	DefaultRetryFirst = 100 * time.Millisecond
	DefaultRetryLast  = time.Minute
)

const (
	// RetryRefused is when a refused request is retried. The cause may be an object that is not watched.
	RetryRefused = 20 * time.Second
	// LookAgain is when a removal polls for objects that this process does not watch.
	LookAgain = 2 * time.Second
)

// LoopConfig is what a Loop needs.
type LoopConfig[K comparable] struct {
	// Name is for the log, such as nodejob.
	Name string
	// Reconcile reconciles one key, regardless of the event. With again above 0 it runs once more after that time, if
	// nothing makes it run earlier. An error makes it run again with back-off.
	Reconcile func(ctx context.Context, key K) (again time.Duration, err error)
	// Workers is how many keys are reconciled at once; 0 means 1.
	Workers int
	// Log, if not nil, logs failed runs.
	Log *slog.Logger

	// RetryFirst and RetryLast bound the back-off; 0 means the default.
	RetryFirst, RetryLast time.Duration
}

// Loop is a queue of keys and what runs for them.
type Loop[K comparable] struct {
	LoopConfig[K]
	queue workqueue.TypedRateLimitingInterface[K]
	heard []heard
}

// heard is a handler that is registered with an informer.
type heard struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
}

// NewLoop checks the configuration.
func NewLoop[K comparable](c LoopConfig[K]) (*Loop[K], error) {
	if c.Reconcile == nil {
		return nil, errors.New("a loop needs something to run")
	}
	c.Workers = cmp.Or(c.Workers, 1)
	c.RetryFirst, c.RetryLast = cmp.Or(c.RetryFirst, DefaultRetryFirst), cmp.Or(c.RetryLast, DefaultRetryLast)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("loop", c.Name)
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[K](c.RetryFirst, c.RetryLast)
	return &Loop[K]{LoopConfig: c, queue: workqueue.NewTypedRateLimitingQueue(limits)}, nil
}

// Enqueue makes a key run. It may be called before Run, and after it.
func (l *Loop[K]) Enqueue(key K) { l.queue.Add(key) }

// Retry runs a key whose runs may have failed, and are likely to succeed now: it resets the back-off.
func (l *Loop[K]) Retry(key K) {
	l.queue.Forget(key)
	l.queue.Add(key)
}

// EnqueueAfter makes a key run after a time.
func (l *Loop[K]) EnqueueAfter(key K, after time.Duration) { l.queue.AddAfter(key, after) }

// Watch runs the keys of an object whenever it is added, changed or deleted. It is called before Run, which waits for
// the initial list, and unregisters the handler when it ends. The owner of the informer starts it.
func (l *Loop[K]) Watch(informer cache.SharedIndexInformer, keys func(object any) []K) error {
	return l.WatchChanges(informer, keys, nil)
}

// WatchChanges is Watch for objects of which most changes do not matter: matters says which do. An update that does not
// matter runs nothing.
func (l *Loop[K]) WatchChanges(informer cache.SharedIndexInformer, keys func(object any) []K, matters func(old, now any) bool) error {
	add := func(object any) {
		for _, key := range keys(object) {
			l.Enqueue(key)
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add,
		UpdateFunc: func(old, now any) {
			if matters == nil || matters(old, now) {
				add(old) // it may have belonged to others
				add(now)
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if object != nil {
				add(object)
			}
		},
	})
	if err != nil {
		return err
	}
	l.heard = append(l.heard, heard{informer, registered})
	return nil
}

// Run reconciles keys until ctx ends, and waits for the runs that have started by then; it drops the others.
func (l *Loop[K]) Run(ctx context.Context) error {
	defer l.queue.ShutDown()
	var synced []cache.DoneChecker
	for _, h := range l.heard {
		synced = append(synced, h.handler.HasSyncedChecker())
		defer func() { _ = h.informer.RemoveEventHandler(h.handler) }() // it fails of an informer that has ended
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil // ctx has ended
	}
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	var workers sync.WaitGroup
	for range l.Workers {
		workers.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	workers.Wait()
	return nil
}

func (l *Loop[K]) next(ctx context.Context) bool {
	key, over := l.queue.Get()
	if over {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil { // the queue gives out what it holds before it is over
		return false
	}
	again, err := l.once(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.Log.Warn("a reconcile failed and is retried", "key", key, "error", err)
		l.queue.AddRateLimited(key)
	default:
		l.queue.Forget(key)
		if again > 0 {
			l.queue.AddAfter(key, again)
		}
	}
	return true
}

// Sooner is the earlier of two times after which to run again, of which 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// once turns a panic into an error: one object must not crash the process, which would restart and panic again.
func (l *Loop[K]) once(ctx context.Context, key K) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.Log.Error("a reconcile panicked", "key", key, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("a bug in this program: %v", r)
		}
	}()
	return l.Reconcile(ctx, key)
}
