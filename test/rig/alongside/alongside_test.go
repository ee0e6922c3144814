package alongside

import (
	"context"
	"errors"
	"testing"
)

// recorder is a test that remembers its errors.
type recorder struct {
	testing.TB
	errors int
}

func (t *recorder) Errorf(string, ...any) { t.errors++ }

func TestStop_EndsTheGoroutinesAndReturnsTheirErrorOnce(t *testing.T) {
	for _, result := range []error{nil, errors.New("broken")} {
		ctx, cancel := context.WithCancel(context.Background())
		test, over := &recorder{TB: t}, false
		stop := Run(ctx, test, cancel, func(ctx context.Context) error {
			<-ctx.Done()
			over = true
			return result
		})
		stop()
		stop()
		if !over || (test.errors == 1) != (result != nil) {
			t.Errorf("%v: over %t, %d errors", result, over, test.errors)
		}
	}
}
