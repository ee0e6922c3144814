package nodeops

import (
	"context"
	"time"
)

// tryAgain calls try until it is done or fails, with pauses and for a limited time, and returns whether it is done.
func tryAgain(ctx context.Context, limit, pause time.Duration, try func() (done bool, err error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if done, err := try(); done || err != nil {
			return done, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}
