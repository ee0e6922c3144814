package provisioner

import (
	"context"
	"sync"
)

// gate admits calls while the Lease is held, and cancels the running ones when it is lost.
type gate struct {
	calls sync.WaitGroup

	mu   sync.Mutex
	term context.Context // nil while the Lease is not held
}

func (g *gate) open(term context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term = term
}

// shut admits no more calls and waits for the running ones, whose context ends with the term.
func (g *gate) shut() {
	g.mu.Lock()
	g.term = nil
	g.mu.Unlock()
	g.calls.Wait()
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term != nil && g.term.Err() == nil
}

// enter returns a context for a call, which ends with the term, and the function that ends the call.
func (g *gate) enter(ctx context.Context) (context.Context, func(), bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term == nil || g.term.Err() != nil {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(g.term, cancel)
	g.calls.Add(1)
	return ctx, func() { unlink(); cancel(); g.calls.Done() }, true
}
