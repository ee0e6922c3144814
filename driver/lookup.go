package driver

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"

	"github.com/holdfast-storage/holdfast/backend"
)

// lookUps runs look-ups that the disk of any pool may hang. Each occupies a thread then, so one is not repeated while it runs.
type lookUps struct{ running singleflight.Group }

// within returns the result of f, or an ErrUnavailable after the patience of the node. A fresh result is none of a look-up
// that began before this call.
func within[T any](ctx context.Context, n *node, all *lookUps, id backend.ID, fresh bool, f func(context.Context) (T, error)) (T, error) {
	var zero T
	limited, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	for {
		answer := all.running.DoChan(string(id), func() (_ any, err error) {
			defer n.calls.recoverTo(&err, "look-up")
			return f(context.WithoutCancel(ctx))
		})
		select {
		case is := <-answer:
			if fresh && is.Shared {
				continue
			}
			value, _ := is.Val.(T)
			return value, is.Err
		case <-ctx.Done():
			return zero, ctx.Err()
		case <-limited.Done():
			return zero, fmt.Errorf("%w: volume %s cannot be looked up, since a pool of this node does not answer; look in the kernel's log for the disk that hangs: %w", backend.ErrUnavailable, id, limited.Err())
		}
	}
}
