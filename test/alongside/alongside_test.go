package alongside

import (
	"context"
	"errors"
	"testing"
)

// told is a test that remembers its errors.
type told struct {
	testing.TB
	errors int
}

func (t *told) Errorf(string, ...any) { t.errors++ }

func TestStopEndsWhatRunsAndTellsItsErrorOnce(t *testing.T) {
	for _, result := range []error{nil, errors.New("broken")} {
		ctx, cancel := context.WithCancel(context.Background())
		test, over := &told{TB: t}, false
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

func TestWhatRunsEndsWithTheTest(t *testing.T) {
	over := false
	t.Run("inner", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		Run(ctx, t, cancel, func(ctx context.Context) error {
			<-ctx.Done()
			over = true
			return nil
		})
	})
	if !over {
		t.Error("it runs on")
	}
}
