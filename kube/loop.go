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

// The default back-off of a key whose reconciliation fails.
const (
	DefaultRetryFirst = 100 * time.Millisecond
	DefaultRetryLast  = time.Minute
)

const (
	// RetryRefused is the delay after which a refused request is retried: its cause may be an object that is not watched.
	RetryRefused = 20 * time.Second
	// LookAgain is the poll interval of a removal that waits for objects that this process does not watch.
	LookAgain = 2 * time.Second
)

// LoopConfig configures a Loop.
type LoopConfig[K comparable] struct {
	// Name appears in the log, such as nodejob.
	Name string
	// Reconcile reconciles one key, regardless of the event. It runs again after the returned time if that is above 0, or
	// with back-off after an error; an event makes it run earlier.
	Reconcile func(ctx context.Context, key K) (again time.Duration, err error)
	// Workers is how many keys are reconciled concurrently; 0 means 1.
	Workers int
	// SlowAfter, if above 0, is how long a reconcile may occupy a worker. One that takes longer continues, and another
	// worker takes its place: as many slow keys as there are workers would otherwise hold up all others.
	SlowAfter time.Duration
	// Log, if not nil, logs failed runs.
	Log *slog.Logger

	// RetryFirst and RetryLast bound the back-off; 0 means the default.
	RetryFirst, RetryLast time.Duration
}

// Loop reconciles the keys of a queue.
type Loop[K comparable] struct {
	LoopConfig[K]
	queue   workqueue.TypedRateLimitingInterface[K]
	watched []watched
}

// watched is an event handler and the informer with which it is registered.
type watched struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
}

// NewLoop validates the configuration.
func NewLoop[K comparable](c LoopConfig[K]) (*Loop[K], error) {
	if c.Reconcile == nil {
		return nil, errors.New("a loop needs a function that reconciles")
	}
	c.Workers = cmp.Or(c.Workers, 1)
	c.RetryFirst, c.RetryLast = cmp.Or(c.RetryFirst, DefaultRetryFirst), cmp.Or(c.RetryLast, DefaultRetryLast)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Log = c.Log.With("loop", c.Name)
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[K](c.RetryFirst, c.RetryLast)
	return &Loop[K]{LoopConfig: c, queue: workqueue.NewTypedRateLimitingQueue(limits)}, nil
}

// Enqueue queues a key. It may be called before Run and at any time after.
func (l *Loop[K]) Enqueue(key K) { l.queue.Add(key) }

// Retry queues a key and resets its back-off, for a key whose reconciliation failed and is likely to succeed now.
func (l *Loop[K]) Retry(key K) {
	l.queue.Forget(key)
	l.queue.Add(key)
}

// EnqueueAfter queues a key after a delay.
func (l *Loop[K]) EnqueueAfter(key K, after time.Duration) { l.queue.AddAfter(key, after) }

// Watch queues the keys of an object whenever it is added, changed or deleted. Call it before Run, which waits for the
// initial list and unregisters the handler at its end. The owner of the informer starts it.
func (l *Loop[K]) Watch(informer cache.SharedIndexInformer, keys func(object any) []K) error {
	return l.WatchChanges(informer, keys, nil)
}

// WatchChanges is Watch for objects most of whose updates are irrelevant: updates for which matters returns false are
// ignored.
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
				add(old) // the old state may map to other keys
				add(now)
			}
		},
		DeleteFunc: func(object any) {
			if last := Deleted(object); last != nil {
				add(last)
			}
		},
	})
	if err != nil {
		return err
	}
	l.watched = append(l.watched, watched{informer, registered})
	return nil
}

// Run reconciles keys until ctx ends, and then waits for running reconciliations; keys that are still queued are
// dropped.
func (l *Loop[K]) Run(ctx context.Context) error {
	defer l.queue.ShutDown()
	var synced []cache.DoneChecker
	for _, h := range l.watched {
		synced = append(synced, h.handler.HasSyncedChecker())
		defer func() { _ = h.informer.RemoveEventHandler(h.handler) }() // fails if the informer has stopped
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil // ctx has ended
	}
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	var workers sync.WaitGroup
	for range l.Workers {
		workers.Go(func() { l.work(ctx, &workers) })
	}
	workers.Wait()
	return nil
}

// Drop ends a loop that is not run after all.
func (l *Loop[K]) Drop() { l.queue.ShutDown() }

// work is one worker. It ends when the loop does, or when another has taken its place.
func (l *Loop[K]) work(ctx context.Context, workers *sync.WaitGroup) {
	for l.next(ctx, func() { workers.Go(func() { l.work(ctx, workers) }) }) {
	}
}

// lateness calls replace if the reconcile of key takes longer than SlowAfter. The function that it returns ends that,
// and says whether replace was called; until then the caller counts as a worker, so that Run cannot end in between.
func (l *Loop[K]) lateness(key K, replace func()) (replaced func() bool) {
	if l.SlowAfter <= 0 {
		return func() bool { return false }
	}
	done := make(chan struct{})
	late := time.AfterFunc(l.SlowAfter, func() {
		defer close(done)
		l.Log.Warn("a reconcile takes long and continues; others do not wait for it", "key", key)
		replace()
	})
	return func() bool {
		if late.Stop() {
			return false
		}
		<-done
		return true
	}
}

// next reconciles the next key, and says whether the caller is still a worker.
func (l *Loop[K]) next(ctx context.Context, replace func()) bool {
	key, over := l.queue.Get()
	if over {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil { // after a shutdown the queue still returns its remaining keys
		return false
	}
	replaced := l.lateness(key, replace)
	again, err := l.reconcileSafely(ctx, key)
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
	return !replaced()
}

// Sooner returns the shorter of two delays, where 0 means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// reconcileSafely turns a panic into an error: one object must not crash the process, which would restart and panic
// again.
func (l *Loop[K]) reconcileSafely(ctx context.Context, key K) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.Log.Error("a reconcile panicked", "key", key, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("a bug in this program: %v", r)
		}
	}()
	return l.Reconcile(ctx, key)
}
