//go:build ceph

package ceph

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
)

// operation is what runs, or is waited for, under one ID.
type operation struct {
	callers int // the cluster's lock guards it

	mu     sync.Mutex
	reason error         // why it does not get on; nil: it does
	stalls chan struct{} // closed when it does not get on
}

type operationKey struct {
	ops *backend.Operations
	id  backend.ID
}

type inOperation struct{}

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(inOperation{}).(*operation)
	return op
}

// Background is for work that no caller waits for: its calls take the time that they take.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, inOperation{}, &operation{stalls: make(chan struct{})})
}

// Do is backend.Do, but that its caller, and one who repeats the call, gets ErrUnavailable when the operation waits for a
// cluster that does not answer, with what it waits for and since when. The operation itself goes on, and nothing else
// begins on its ID before it has ended.
//
// An operation that runs another one waits for it however long that takes, and lets its own callers know: what it has done
// under its ID is not over.
func Do[T any](ctx context.Context, c *Cluster, ops *backend.Operations, id backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	outer := operationOf(ctx)
	op := c.join(operationKey{ops, id})
	defer c.part(operationKey{ops, id}, op)
	waiting, leave := context.WithCancel(ctx)
	watched := make(chan struct{})
	var stalled error
	go func() {
		defer close(watched)
		if stalled = op.awaitStall(waiting); stalled != nil && outer != nil {
			outer.stallFor(stalled)
		} else if stalled != nil {
			leave()
		}
	}()
	value, err := backend.Do(waiting, ops, id, verb, func(ctx context.Context) (T, error) {
		again := c.join(operationKey{ops, id}) // stays when all callers have left
		defer c.part(operationKey{ops, id}, again)
		return f(context.WithValue(ctx, inOperation{}, again))
	})
	left := waiting.Err() != nil
	leave()
	<-watched
	if outer != nil {
		outer.resume()
		return value, err
	}
	if reason := cmp.Or(op.why(), stalled); err != nil && reason != nil && left { // it may have gone on since
		return value, fmt.Errorf("%w (%v)", reason, err)
	}
	return value, err
}

func (c *Cluster) join(key operationKey) *operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	op := c.operations[key]
	if op == nil {
		op = &operation{stalls: make(chan struct{})}
		c.operations[key] = op
	}
	op.callers++
	return op
}

func (c *Cluster) part(key operationKey, op *operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if op.callers--; op.callers == 0 {
		delete(c.operations, key)
	}
}

// stall lets all callers know that a call does not return.
func (o *operation) stall(c *Cluster, r *running) { o.stallFor(c.stalled(r)) }

func (o *operation) stallFor(reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason == nil {
		close(o.stalls)
	}
	o.reason = reason
}

// resume ends a stall.
func (o *operation) resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason != nil {
		o.reason, o.stalls = nil, make(chan struct{})
	}
}

// awaitStall returns why an operation does not get on once it does not, nil when ctx ends.
func (o *operation) awaitStall(ctx context.Context) error {
	for {
		select {
		case <-o.stalling():
			if reason := o.why(); reason != nil {
				return reason
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (o *operation) stalling() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stalls
}

func (o *operation) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reason
}
