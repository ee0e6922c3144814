package agent

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// key names a volume or snapshot to reconcile, whether it has an object, is on disk, or both.
type key struct {
	kind v1beta1.SourceKind
	name string
}

func (k key) String() string { return string(k.kind) + " " + k.name }

// id returns the ID for the backend. Names of objects are checked when they are reconciled.
func (k key) id() backend.ID { return backend.ID(k.name) }

// work is what this process remembers about its keys.
type work struct {
	mu        sync.Mutex
	discarded map[types.UID]bool // the cache may still have them
	forgotten map[key]bool       // objects that were deleted without a request and are to be written again
	made      map[key]bool       // created by this process without an object, which is to be written
	conflicts map[key]int        // in a row
}

func newWork() *work {
	return &work{discarded: map[types.UID]bool{}, forgotten: map[key]bool{}, made: map[key]bool{}, conflicts: map[key]int{}}
}

// forgot records that the finalizer of an object was removed while its data stays.
func (w *work) forgot(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten[k] = true
}

// wasForgotten says whether an object is written again, and clears that record.
func (w *work) wasForgotten(k key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.forgotten, k)
	return w.forgotten[k]
}

// setMade records, or clears, that an entry was created without an object.
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

// conflicted counts the conflicts in a row, and says whether the next try may come at once.
func (w *work) conflicted(k key, conflict bool) (atOnce bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !conflict {
		delete(w.conflicts, k)
		return false
	}
	w.conflicts[k]++
	return w.conflicts[k] <= quickRetries
}

// finish records a completed discard: later, an entry with that name is a new one.
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

// reconcile brings one volume or snapshot to the state that its object specifies.
func (a *Agent) reconcile(ctx context.Context, k key) (again time.Duration, err error) {
	if _, err := backend.ParseID(k.name); err != nil {
		a.log.Warn("left alone: its name is no valid id", "kind", k.kind, "name", k.name)
		return 0, nil //nolint:nilerr // a retry cannot help
	}
	made := a.work.wasMade(k)
	if k.kind == v1beta1.SourceSnapshot {
		err = a.reconcileSnapshot(ctx, k)
	} else {
		err = a.reconcileVolume(ctx, k)
	}
	if a.work.conflicted(k, apierrors.IsConflict(err)) {
		return watchDelay, nil // no failure: the watch is about to deliver a newer object
	}
	if err == nil && made { // otherwise it may have been made just now, and is in the queue again
		a.work.setMade(k, false)
	}
	return 0, err
}

// watchDelay is longer than a watch usually takes.
const watchDelay = 20 * time.Millisecond

// quickRetries is how often a conflict is retried without back-off: a watch that is behind delivers nothing soon, or
// another client writes all the time.
const quickRetries = 5
