package agent

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	discarded sync.Map // by UID: the cache may still have them, but an entry on the disk with that name is a new one
	forgotten sync.Map // by key: deleted without a request, so their finalizers were removed, and to be written again
	made      sync.Map // by key: created by this process without an object, which is to be written
	conflicts sync.Map // by key: how many there were in a row
}

func has(m *sync.Map, k any) bool {
	_, is := m.Load(k)
	return is
}

// wasForgotten says whether an object is written again, and clears that record.
func (w *work) wasForgotten(k key) bool {
	_, was := w.forgotten.LoadAndDelete(k)
	return was
}

// conflicted counts the conflicts in a row of a key that is reconciled, and says whether the next try may come at once.
func (w *work) conflicted(k key, conflict bool) (atOnce bool) {
	if !conflict {
		w.conflicts.Delete(k)
		return false
	}
	before, _ := w.conflicts.Load(k)
	count, _ := before.(int)
	w.conflicts.Store(k, count+1)
	return count < quickRetries
}

// reconcile brings one volume or snapshot to the state that its object specifies.
func (a *Agent) reconcile(ctx context.Context, k key) (again time.Duration, err error) {
	if _, err := backend.ParseID(k.name); err != nil {
		a.log.Warn("left alone: its name is no valid id", "kind", k.kind, "name", k.name)
		return 0, nil // a retry cannot help
	}
	defer backend.Step(a.log, k.id(), "reconcile")()
	made := has(&a.work.made, k)
	if k.kind == v1beta1.SourceSnapshot {
		err = a.reconcileSnapshot(ctx, k)
	} else {
		err = a.reconcileVolume(ctx, k)
	}
	if a.work.conflicted(k, apierrors.IsConflict(err)) {
		return watchDelay, nil // no failure: the watch is about to deliver a newer object
	}
	if err == nil && made { // otherwise it may have been made just now, and is in the queue again
		a.work.made.Delete(k)
	}
	return 0, err
}

// watchDelay is longer than a watch usually takes.
const watchDelay = 20 * time.Millisecond

// quickRetries is how often a conflict is retried without back-off: a watch that is behind delivers nothing soon, or
// another client writes all the time.
const quickRetries = 5
