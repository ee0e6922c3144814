// Package mortal kills a process of a test, or what plays one, at one of its steps: the requests by which it changes something,
// and what else it counts. Each request is two steps, before it is sent and before its answer arrives.
package mortal

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ErrDead is the answer to all that a dead process does.
var ErrDead = errors.New("this process is dead")

// Process counts its steps, and dies at one of them.
type Process struct {
	// Counts says which requests are steps. nil: all that change something but Leases and events.
	Counts func(*http.Request) bool
	// Die is called at death, if it is set, before anything else of the process goes on.
	Die func(step int, what string)

	at   int
	died chan struct{}

	request sync.Mutex // one at a time, so that no other has its effect in between
	mu      sync.Mutex
	steps   int
	last    string
}

// New returns a process that dies at a step, from 1 on, in place of doing it; 0: never.
func New(at int) *Process { return &Process{at: at, died: make(chan struct{})} }

// AfterWrites returns a process that dies in place of its next request after so many.
func AfterWrites(n int) *Process { return New(2*n + 1) }

// Died is closed at death.
func (p *Process) Died() <-chan struct{} { return p.died }

// IsDead says whether the process has died.
func (p *Process) IsDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// Steps returns how many there were, with the last one, and which that was of a dead process.
func (p *Process) Steps() (n int, last string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steps, p.last
}

// Writes returns how many requests there were, with the last one, where all steps are requests.
func (p *Process) Writes() int {
	steps, _ := p.Steps()
	return (steps + 1) / 2
}

// Step counts a step. It returns an error if the process is dead, or dies here.
func (p *Process) Step(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.IsDead() {
		return ErrDead
	}
	if p.steps++; p.steps != p.at {
		return nil
	}
	if p.Die != nil {
		p.Die(p.steps, what)
	}
	p.last = what
	close(p.died)
	return ErrDead
}

// Do counts what has an effect: before it, and after it.
func (p *Process) Do(what string, f func() error) error {
	if err := p.Step("before " + what); err != nil {
		return err
	}
	err := f()
	if dead := p.Step("after " + what); dead != nil {
		return dead
	}
	return err
}

// Client returns the configuration of the clients of the process, which die with it.
func (p *Process) Client(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{p, next} })
	return config
}

type transport struct {
	*Process
	next http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	counts := t.Counts
	if counts == nil {
		counts = Changes
	}
	if !counts(r) {
		if t.IsDead() {
			return nil, ErrDead
		}
		return t.next.RoundTrip(r)
	}
	t.request.Lock()
	defer t.request.Unlock()
	err = t.Do(r.Method+" "+r.URL.Path, func() error {
		answer, err = t.next.RoundTrip(r) //nolint:bodyclose // the client closes it
		return err
	})
	if err != nil && answer != nil {
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, err
}

// Changes says whether a request changes something that is no Lease and no event.
func Changes(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/events")
}

// KilledAtEveryWrite runs processes one after another, each for one write, until something is so or ctx ends. It returns how many.
func KilledAtEveryWrite(ctx context.Context, run func(writes int) (dead <-chan struct{}, stop func()), done func() bool) (processes int) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !done() && ctx.Err() == nil {
		processes++
		dead, stop := run(1)
		for alive := true; alive && !done() && ctx.Err() == nil; {
			select {
			case <-dead:
				alive = false
			case <-look.C:
			}
		}
		stop()
	}
	return processes
}
