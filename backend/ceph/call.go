//go:build ceph

package ceph

import (
	"context"
	"fmt"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// running is a call of Ceph's libraries.
type running struct {
	what  string
	since time.Time
	done  chan struct{}
}

func (r *running) String() string {
	return fmt.Sprintf("%s has been running for %s", r.what, time.Since(r.since).Round(time.Millisecond))
}

// mostRunning bounds the threads that a cluster which does not answer can hold.
const mostRunning = 128

// Call runs f with the connection. Where that takes longer than the cluster's patience, its caller gets ErrUnavailable with
// the reason, and f goes on: it must leave what is consistent whenever it ends.
//
// In an operation (Do) Call returns only when f has ended: there it is the operation's callers who do not wait longer.
func Call[T any](ctx context.Context, c *Cluster, what string, f func(*rados.Conn) (T, error)) (T, error) {
	var (
		zero, value T
		result      error
	)
	r, err := c.enter(what)
	if err != nil {
		return zero, err
	}
	go func() {
		defer c.leave(r)
		conn, err := c.connect()
		if err != nil {
			result = fmt.Errorf("connecting to Ceph: %w", c.translate(err))
			return
		}
		value, err = f(conn)
		result = c.translate(err)
	}()
	op := operationOf(ctx)
	patience := time.NewTimer(c.config.Patience)
	defer patience.Stop()
	ended := ctx.Done()
	if op != nil {
		ended = nil
	}
	select {
	case <-r.done:
	case <-ended:
		return zero, fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, r, ctx.Err())
	case <-patience.C:
		if op == nil {
			return zero, c.stalled(r)
		}
		op.stall(c, r)
		<-r.done
		op.resume()
	}
	if result != nil {
		return zero, fmt.Errorf("%s: %w", what, result)
	}
	return value, nil
}

// enter notes a call that begins.
func (c *Cluster) enter(what string) (*running, error) {
	oldest := c.oldest()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, what, errClosed)
	}
	if len(c.running) >= mostRunning {
		return nil, fmt.Errorf("%w: %s: %d calls wait for Ceph, and %s", backend.ErrUnavailable, what, len(c.running), oldest)
	}
	r := &running{what: what, since: time.Now(), done: make(chan struct{})}
	c.running[r] = struct{}{}
	return r, nil
}

func (c *Cluster) leave(r *running) {
	c.mu.Lock()
	delete(c.running, r)
	c.mu.Unlock()
	close(r.done)
}

// oldest is the call that has been running for longest, if any.
func (c *Cluster) oldest() (first *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.running {
		if first == nil || r.since.Before(first.since) {
			first = r
		}
	}
	return first
}
