package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// errPoolOut means that the volume or snapshot was created and its pool cannot be read.
var errPoolOut = errors.New("its pool is out of reach")

// place is the pool of an object, by its status.
type place struct {
	pool string // its name
	id   string // its identity; empty in objects of older releases
	path string // where it was mounted
	lost bool   // the phase is Lost
}

// lost says why the disk does not have an entry that was created: its pool lacks it, or is out of reach.
func (a *Agent) lost(ctx context.Context, at place) error {
	found := false
	for _, p := range a.Pools {
		room, err := a.Backend.Capacity(ctx, p.Name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		is := room.Identity.ID
		switch {
		case err == nil && at.id != "" && is == at.id:
			return errMissing
		case at.pool != "" && at.pool != p.Name, at.pool == "" && backend.PoolReasonOf(err) == backend.NoDisk:
			continue
		case err != nil:
			return fmt.Errorf("%w: %w", errPoolOut, err)
		}
		found = true
		if at.id == "" || is == "" || at.pool == "" {
			continue
		}
		if !at.lost && !a.memory().wasGiven(at.id) {
			return fmt.Errorf("%w: %w", errPoolOut, backend.BecauseOf(backend.WrongPool, fmt.Errorf(
				"it is on the disk of the pool with the ID %s, and pool %s of node %s is another disk now, with the ID %s: give the node that disk again, as a pool of any name", at.id, p.Name, a.Node, is)))
		}
	}
	if !found && at.pool != "" {
		return fmt.Errorf("%w: %w", errPoolOut, a.noSuchPool(at))
	}
	return errMissing
}

// noSuchPool is about entries of a pool that this node no longer has, because it was renamed or removed.
func (a *Agent) noSuchPool(at place) error {
	which := "pool " + at.pool
	if at.id != "" {
		which += " with the ID " + at.id
	}
	if at.path != "" {
		which += ", last seen at " + at.path
	}
	var names []string
	for _, p := range a.Pools {
		names = append(names, fmt.Sprintf("%s at %s", p.Name, p.Path))
	}
	has := "has no pool"
	if len(names) > 0 {
		has = "has only " + strings.Join(names, ", ")
	}
	return backend.BecauseOf(backend.NoPool, fmt.Errorf("it is in %s, and node %s %s: put the pool back into spec.pools of the StorageCluster, with its path or devices; any name will do",
		which, a.Node, has))
}

// anyPoolOut says which of all pools cannot be read.
func (a *Agent) anyPoolOut(ctx context.Context) error {
	for _, p := range a.Pools {
		if _, err := a.Backend.Capacity(ctx, p.Name); err != nil && backend.PoolReasonOf(err) != backend.NoDisk && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errPoolOut, err)
		}
	}
	return nil
}
