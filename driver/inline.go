package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// Inline are the limits of inline ephemeral volumes. Any user who may create pods may request them, so none is created
// unless the administrator has allowed pools.
type Inline struct {
	Pools   []string // that they may be in, the one for those that name none first; none: there are no such volumes
	MaxSize int64    // of one of them
	Field   string   // the setting that allows them, for the message of a refusal
}

// permit refuses what is not allowed, and fills in defaults.
func (n *node) permit(ctx context.Context, spec *backend.VolumeSpec) error {
	allowed := n.Inline
	switch {
	case len(allowed.Pools) == 0:
		return fmt.Errorf("%w: inline ephemeral volumes are not allowed here: %s allows them, with their pools and their largest size; a generic ephemeral volume (ephemeral.volumeClaimTemplate) needs neither",
			backend.ErrPrecondition, allowed.Field)
	case spec.Pool != "" && !slices.Contains(allowed.Pools, spec.Pool):
		return fmt.Errorf("%w pool %s: inline ephemeral volumes may be in %s; %s sets that",
			backend.ErrInvalid, backend.Quote(spec.Pool), strings.Join(allowed.Pools, ", "), allowed.Field)
	case spec.Size.Required > allowed.MaxSize:
		return fmt.Errorf("%w size %s (%d): an inline ephemeral volume may have at most %s; %s sets that",
			backend.ErrOutOfRange, backend.Readable(spec.Size.Required), spec.Size.Required, backend.Readable(allowed.MaxSize), allowed.Field)
	}
	if spec.Size.Required == 0 {
		spec.Size.Required = min(backend.DefaultSize, allowed.MaxSize)
	}
	spec.Size.Limit = allowed.MaxSize
	if spec.Pool != "" {
		return nil
	}
	for _, pool := range allowed.Pools {
		// A pool that is only out of reach may have the volume: no other pool is used instead.
		if _, err := n.Backend.Capacity(ctx, pool); !errors.Is(err, backend.ErrNotFound) {
			spec.Pool = pool
			return nil
		}
	}
	return fmt.Errorf("%w: this node has no pool for inline ephemeral volumes, which may be in %s; %s sets that",
		backend.ErrPrecondition, strings.Join(allowed.Pools, ", "), allowed.Field)
}
