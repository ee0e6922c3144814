package bench

import (
	"context"
	"sync"
	"time"
)

// podSeen is what was seen of a pod. Times are when the watch reported it first.
type podSeen struct {
	created, running, gone time.Time
	ended                  string // why it will never run
	unplaced               string // what the scheduler says while it finds no node
	waiting                string // what its container waits for
}

// claimSeen is what was seen of a claim and its volume.
type claimSeen struct {
	created, bound, deleted, volumeGone time.Time
}

// volumeSeen is a volume that is there.
type volumeSeen struct {
	claim    string
	retained bool // it stays when its claim goes
}

// seen is what the watches have reported about the run's objects, all by name.
type seen struct {
	mu            sync.Mutex
	changed       chan struct{} // closed at the next change
	namespace     string        // what lies elsewhere is not ours
	pods          map[string]*podSeen
	claims        map[string]*claimSeen
	volumes       map[string]volumeSeen
	account       bool // pods can be made
	namespaceGone bool
	warnings      warnings
	interrupted   error // the first interruption
	blind         error // why the end of things is not seen
}

func newSeen(namespace string) *seen {
	return &seen{
		changed: make(chan struct{}), namespace: namespace, warnings: newWarnings(),
		pods: map[string]*podSeen{}, claims: map[string]*claimSeen{}, volumes: map[string]volumeSeen{},
	}
}

// update changes what is seen and wakes those who wait.
func (s *seen) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// read looks at what is seen.
func (s *seen) read(look func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look()
}

// await returns when done says so or fails, or with the cause when ctx ends. done sees nothing change while it looks.
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

// first keeps the time of the first event.
func first(t *time.Time, at time.Time) {
	if t.IsZero() {
		*t = at
	}
}
