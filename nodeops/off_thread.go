package nodeops

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"
)

// offThread runs calls that may hang in the kernel indefinitely. Each occupies a thread, so a call is not repeated
// while it runs: concurrent callers share it.
type offThread[T any] struct{ running singleflight.Group }

// do returns the result of f, or an error that says what hangs when ctx ends.
func (o *offThread[T]) do(ctx context.Context, key, hangs string, f func() (T, error)) (result T, err error) {
	select {
	case answer := <-o.running.DoChan(key, func() (any, error) { return f() }):
		result, _ = answer.Val.(T)
		return result, answer.Err
	case <-ctx.Done():
		return result, fmt.Errorf("%s: %w", hangs, ctx.Err())
	}
}
