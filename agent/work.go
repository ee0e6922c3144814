package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// key names one thing to be worked on: a volume or a snapshot, whether it has an object, is on disk, or both.
type key struct {
	kind v1.SourceKind
	name string
}

func (k key) String() string { return string(k.kind) + " " + k.name }

// id is what the backend calls it. Names of objects are checked when work on them begins.
func (k key) id() backend.ID { return backend.ID(k.name) }

// work is what is to be done: several things at once, and never twice on one.
type work struct {
	queue workqueue.TypedRateLimitingInterface[key]

	mu        sync.Mutex
	discarded map[types.UID]bool // the cache may still have them
	forgotten map[key]bool       // objects that were deleted without a request and are to be written again
	written   map[key]string     // the version of what this agent last wrote, until the cache has it
	made      map[key]bool       // by this process without an object, which is to be written
}

func newWork(first, last time.Duration) *work {
	return &work{
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](first, last)),
		discarded: map[types.UID]bool{},
		forgotten: map[key]bool{},
		written:   map[key]string{},
		made:      map[key]bool{},
	}
}

// wrote remembers a write of this agent.
func (w *work) wrote(k key, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[k] = o.GetResourceVersion()
}

// unseen says whether the cache does not have yet what this agent itself wrote of an object, so that what it says of
// work that is left is not true.
func (w *work) unseen(k key, o metav1.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), w.written[k])
	if err == nil && order < 0 {
		return true
	}
	delete(w.written, k)
	return false
}

// forget is called when the object is gone.
func (w *work) forget(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.written, k)
}

// forgot remembers that an object was let go while its data stays.
func (w *work) forgot(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten[k] = true
}

// wasForgotten says whether an object is written again, and forgets that.
func (w *work) wasForgotten(k key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.forgotten, k)
	return w.forgotten[k]
}

// setMade remembers, or forgets, that something was made without an object.
func (w *work) setMade(k key, made bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if made {
		w.made[k] = true
	} else {
		delete(w.made, k)
	}
}

func (w *work) wasMade(k key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made[k]
}

// finish remembers a discard: once done, what has its name is something else.
func (w *work) finish(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.discarded[uid] = true
}

func (w *work) done(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.discarded[uid]
}

func (w *work) add(k key) { w.queue.Add(k) }

// again adds what may have failed before and is likely to succeed now.
func (w *work) again(k key) {
	w.queue.Forget(k)
	w.queue.Add(k)
}

func (a *Agent) worker(ctx context.Context) {
	// What has not begun when ctx ends is left to the next start.
	defer context.AfterFunc(ctx, a.work.queue.ShutDown)()
	for {
		k, over := a.work.queue.Get()
		if over || ctx.Err() != nil {
			return
		}
		a.workOn(ctx, k)
	}
}

func (a *Agent) workOn(ctx context.Context, k key) {
	defer a.work.queue.Done(k)
	made := a.work.wasMade(k)
	err := a.settle(ctx, k)
	switch {
	case err == nil:
		a.work.queue.Forget(k)
		if made { // otherwise it may have been made just now, and is in the queue again
			a.work.setMade(k, false)
		}
	case ctx.Err() != nil:
	case apierrors.IsConflict(err), errors.Is(err, errUnseen): // nothing has failed: the watch is about to bring what is newer
		a.work.queue.AddAfter(k, watchDelay)
	default:
		a.log.Warn("trying again", "kind", k.kind, "id", k.name, "error", err)
		a.work.queue.AddRateLimited(k)
	}
}

// watchDelay is longer than a watch mostly takes.
const watchDelay = 20 * time.Millisecond

// errUnseen: the cache is behind what this agent has written.
var errUnseen = errors.New("the watch is behind")

// settle brings one thing to where its object wants it; an error means that it is to be tried again.
func (a *Agent) settle(ctx context.Context, k key) (err error) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("panic", "kind", k.kind, "id", k.name, "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: a defect of this program; its log has the stack", k)
		}
	}()
	if _, err := backend.ParseID(k.name); err != nil {
		a.log.Warn("left alone, its name is no id", "kind", k.kind, "name", k.name)
		return nil
	}
	if k.kind == v1.SourceSnapshot {
		return a.settleSnapshot(ctx, k)
	}
	return a.settleVolume(ctx, k)
}
