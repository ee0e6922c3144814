// Package alongside runs what a test needs beside it, such as a controller.
package alongside

import (
	"context"
	"sync"
	"testing"
)

// Run runs something until the test ends or stop is called, which may be more than once: cancel ends it, and its error is
// one of the test.
func Run(ctx context.Context, t testing.TB, cancel context.CancelFunc, run func(context.Context) error) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("what ran beside the test ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
