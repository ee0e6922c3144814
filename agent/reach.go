package agent

import (
	"context"
	"errors"
	"fmt"
)

// errPoolOut: what is looked for was real, and the pool that has it cannot be looked into.
var errPoolOut = errors.New("its pool is out of reach")

// lost says why the disk does not have what was real: it is missing, or where it lies is out of reach.
func (a *Agent) lost(ctx context.Context, pool string) error {
	if err := a.poolOut(ctx, pool); err != nil {
		return err
	}
	return errMissing
}

// poolOut says why a pool cannot be looked into; without a name, which one of all. A pool that this node does not have
// any more is no reason.
func (a *Agent) poolOut(ctx context.Context, pool string) error {
	for _, p := range a.Pools {
		if pool != "" && pool != p.Name {
			continue
		}
		if _, err := a.Backend.Capacity(ctx, p.Name); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errPoolOut, err)
		}
	}
	return nil
}
