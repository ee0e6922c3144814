package bench

import (
	"context"
	"sync"
	"time"
)

// podSeen is what was observed of a pod. A time is when the watch first reported the event.
type podSeen struct {
	created, running, gone time.Time
	ended                  string // why it will never run
	unplaced               string // the scheduler's message while it is not scheduled
	waiting                string // why its container waits
}

// claimSeen is what was observed of a claim and its volume.
type claimSeen struct {
	created, bound, deleted, volumeGone time.Time
}

// volumeSeen is an existing volume.
type volumeSeen struct {
	claim    string
	retained bool // it is not deleted with its claim
}

// seen has what the watches reported about the objects of the run, by name.
type seen struct {
	mu            sync.Mutex
	changed       chan struct{} // closed at the next change
	namespace     string        // objects in other namespaces are ignored
	pods          map[string]*podSeen
	claims        map[string]*claimSeen
	volumes       map[string]volumeSeen
	account       bool // the service account exists, so pods can be created
	namespaceGone bool
	warnings      warnings
	interrupted   error // first interruption of a watch
	blind         error // why deletions are not observed
}

func newSeen(namespace string) *seen {
	return &seen{
		changed: make(chan struct{}), namespace: namespace, warnings: newWarnings(),
		pods: map[string]*podSeen{}, claims: map[string]*claimSeen{}, volumes: map[string]volumeSeen{},
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

// read reads the state.
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

func (s *seen) pod(name string) *podSeen {
	if s.pods[name] == nil {
		s.pods[name] = &podSeen{}
	}
	return s.pods[name]
}

func (s *seen) claim(name string) *claimSeen {
	if s.claims[name] == nil {
		s.claims[name] = &claimSeen{}
	}
	return s.claims[name]
}

// setOnce stores the time of the first event.
func setOnce(t *time.Time, at time.Time) {
	if t.IsZero() {
		*t = at
	}
}
