package host

import (
	"context"
	"errors"
	"time"
)

type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

// Final marks an error after which Until does not try again.
func Final(err error) error { return finalError{err} }

// Until repeats f until it succeeds or the limit is over; then it returns the last error of f. It is for states that
// no event reports.
func Until(ctx context.Context, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := 5 * time.Millisecond
	for {
		err := f()
		if _, final := errors.AsType[finalError](err); err == nil || final {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
			pause = min(2*pause, 200*time.Millisecond)
		}
	}
}
