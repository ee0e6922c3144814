package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// event is what happens to a pod, a claim or its volume.
type event int

const (
	podCreated event = iota
	podRunning
	podGone
	claimCreated
	claimBound
	claimDeleted // it exists until its finalizers are removed
	volumeGone
)

// kind is the kind of the object that an event is counted for.
func (e event) kind() string {
	if e <= podGone {
		return "Pod"
	}
	return "PersistentVolumeClaim"
}

// moment is an event of an object.
type moment struct {
	event event
	name  string
}

// plan is a claim, or a pod, which may use one and be bound to a node.
type plan struct{ pod, claim, node string }

// name is that of the object that an event is counted for.
func (p plan) name(e event) string {
	if e <= podGone {
		return p.pod
	}
	return p.claim
}

// podSeen is what was last observed of a pod that does not run.
type podSeen struct {
	ended    string // why it will never run
	unplaced string // the scheduler's message while it is not scheduled
	waiting  string // why its container waits
}

// seen has what the watches reported about the objects of the run, by name.
type seen struct {
	mu            sync.Mutex
	changed       chan struct{}        // closed at the next change
	namespace     string               // objects in other namespaces are ignored
	times         map[moment]time.Time // of the first event of each sort
	pods          map[string]podSeen
	volumes       map[string]bool // those that exist, and whether they outlive their claims
	account       bool            // the service account exists, so pods can be created
	namespaceGone bool
	warnings      warnings
	opening       map[string]bool // watches that were not open yet
	interrupted   error           // first interruption of a watch
	blind         error           // why deletions are not observed
}

func newSeen(namespace string) *seen {
	return &seen{
		changed: make(chan struct{}), namespace: namespace, opening: map[string]bool{},
		times: map[moment]time.Time{}, pods: map[string]podSeen{}, volumes: map[string]bool{},
		warnings: warnings{map[types.UID]*core.Event{}, map[objectKey]string{}},
	}
}

// update modifies the state and wakes waiters.
func (s *seen) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *seen) read(look func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look()
}

// await waits until done returns true or an error, or ctx ends; then it returns the cause. The state does not change
// while done runs.
func (s *seen) await(ctx context.Context, done func() (bool, error)) error {
	for {
		var (
			ok      bool
			err     error
			changed <-chan struct{}
		)
		s.read(func() {
			if changed, err = s.changed, s.blind; err == nil {
				ok, err = done()
			}
		})
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// reached records the answer to the request of a list or a watch. A failure before a watch is open ends the run.
func (s *seen) reached(what string, watching bool, err error) {
	s.update(func() {
		opening := s.opening[what]
		switch {
		case err == nil && watching:
			delete(s.opening, what)
			return
		case err == nil && opening:
			return
		case err == nil: // it lists again
			err = errors.New("changes were lost")
		}
		err = fmt.Errorf("watching %s: %w", what, err)
		if opening {
			s.blind = err
		} else if s.interrupted == nil {
			s.interrupted = err
		}
	})
}

func (s *seen) mark(e event, name string, at time.Time) {
	if s.times[moment{e, name}].IsZero() {
		s.times[moment{e, name}] = at
	}
}

// at is when an event of a plan was seen first, or zero.
func (s *seen) at(e event, p plan) time.Time { return s.times[moment{e, p.name(e)}] }
