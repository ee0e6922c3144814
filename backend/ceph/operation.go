//go:build ceph

package ceph

import (
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
func Do[T any](ctx context.Context, c *Cluster, ops *backend.Operations, id backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	op := c.join(operationKey{ops, id})
	defer c.part(operationKey{ops, id}, op)
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	go func() {
		select {
		case <-op.stalling():
			leave()
		case <-waiting.Done():
		}
	}()
	value, err := backend.Do(waiting, ops, id, verb, func(ctx context.Context) (T, error) {
		again := c.join(operationKey{ops, id}) // stays when all callers have left
		defer c.part(operationKey{ops, id}, again)
		return f(context.WithValue(ctx, inOperation{}, again))
	})
	if reason := op.why(); err != nil && reason != nil && waiting.Err() != nil {
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
func (o *operation) stall(c *Cluster, r *running) {
	reason := c.stalled(r)
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
