package backend

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Operations runs at most one operation at a time per ID, detached from the caller: if the caller's context ends, the
// operation continues, and the caller gets an ErrBusy that says which operation is running, since when, and how the
// previous attempt failed. The zero value is ready for use.
type Operations struct {
	// Begun, if not nil, is called before each operation, and the function it returns after it.
	Begun func() (ended func())

	all sync.WaitGroup

	mu      sync.Mutex
	running map[ID]*operation
	failed  map[ID]error // error of the last operation on the ID, if it failed
}

// mostFailures limits the remembered errors of IDs that are not requested again.
const mostFailures = 1024

type operation struct {
	verb  string
	since time.Time
	done  chan struct{}

	progress atomic.Pointer[string]
}

type operationKey struct{}

// Progressf records the progress of the operation of ctx, for callers whose context ends before it. Without an
// operation it does nothing.
func Progressf(ctx context.Context, format string, args ...any) {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		p := fmt.Sprintf(format, args...)
		op.progress.Store(&p)
	}
}

// Do runs f for id and returns its result, or ErrBusy if ctx ends first. The context of f does not end with ctx.
func Do[T any](ctx context.Context, o *Operations, id ID, verb string, f func(context.Context) (T, error)) (T, error) {
	var zero T
	op, err := o.begin(ctx, id, verb)
	if err != nil {
		return zero, err
	}
	var (
		value  T
		result error
	)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				result = fmt.Errorf("%s of %s panicked: %v\n%s", verb, id, p, debug.Stack())
			}
			o.end(id, op, result)
		}()
		if o.Begun != nil {
			defer o.Begun()()
		}
		value, result = f(context.WithValue(context.WithoutCancel(ctx), operationKey{}, op))
	}()
	select {
	case <-op.done:
		return value, result
	case <-ctx.Done():
		return zero, o.busy(id, ctx.Err())
	}
}

// Run is Do for an operation without a result.
func Run(ctx context.Context, o *Operations, id ID, verb string, f func(context.Context) error) error {
	_, err := Do(ctx, o, id, verb, func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

// Wait waits until no operation is running, or returns the error of ctx.
func (o *Operations) Wait(ctx context.Context) error { return Await(ctx, o.all.Wait) }

// Await returns when wait has returned, or the error of ctx if that ends before.
func Await(ctx context.Context, wait func()) error {
	over := make(chan struct{})
	go func() { wait(); close(over) }()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// InFlight returns the number of running operations and the age of the oldest.
func (o *Operations) InFlight() (count int, oldest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.running {
		oldest = max(oldest, time.Since(op.since))
	}
	return len(o.running), oldest
}

// begin waits until no operation is running on id and registers a new one.
func (o *Operations) begin(ctx context.Context, id ID, verb string) (*operation, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, o.busy(id, err)
		}
		o.mu.Lock()
		before := o.running[id]
		if before == nil {
			op := &operation{verb: verb, since: time.Now(), done: make(chan struct{})}
			if o.running == nil {
				o.running, o.failed = map[ID]*operation{}, map[ID]error{}
			}
			o.running[id] = op
			o.all.Add(1)
			o.mu.Unlock()
			return op, nil
		}
		o.mu.Unlock()
		select {
		case <-before.done:
		case <-ctx.Done():
		}
	}
}

func (o *Operations) end(id ID, op *operation, err error) {
	o.mu.Lock()
	delete(o.running, id)
	if err == nil {
		delete(o.failed, id)
	} else {
		if len(o.failed) >= mostFailures {
			clear(o.failed)
		}
		o.failed[id] = err
	}
	o.mu.Unlock()
	close(op.done)
	o.all.Done()
}

// busy returns the ErrBusy for a caller whose context ended: it describes what is running on id.
func (o *Operations) busy(id ID, cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.running[id]
	if op == nil {
		return fmt.Errorf("%w: the call on %s ended before it started: %w", ErrBusy, id, cause)
	}
	last, progress := "", ""
	if err := o.failed[id]; err != nil {
		last = fmt.Sprintf("; the attempt before it failed: %v", err)
	}
	if p := op.progress.Load(); p != nil {
		progress = " (" + *p + ")"
	}
	return fmt.Errorf("%w: %s of %s has been running for %s%s and continues; retry%s",
		ErrBusy, op.verb, id, time.Since(op.since).Round(time.Millisecond), progress, last)
}
