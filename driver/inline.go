package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// Inline is what inline ephemeral volumes may take. Who may make pods may ask for them, so none is made unless the
// administrator has said where.
type Inline struct {
	Pools   []string // that they may be in, the one for those that name none first; none: there are no such volumes
	MaxSize int64    // of one of them
	Field   string   // what allows them, for who is refused
}

// permit refuses what is not allowed, and fills in what the pod left open.
func (n *node) permit(ctx context.Context, spec *backend.VolumeSpec) error {
	allowed := n.Inline
	switch {
	case len(allowed.Pools) == 0:
		return fmt.Errorf("%w: inline ephemeral volumes are not allowed here: %s allows them, with their pools and their largest size; a generic ephemeral volume (ephemeral.volumeClaimTemplate) needs neither",
			backend.ErrPrecondition, allowed.Field)
	case spec.Pool != "" && !slices.Contains(allowed.Pools, spec.Pool):
		return fmt.Errorf("%w pool %s: inline ephemeral volumes may be in %s; %s says so",
			backend.ErrInvalid, backend.Quote(spec.Pool), strings.Join(allowed.Pools, ", "), allowed.Field)
	case spec.Size.Required > allowed.MaxSize:
		return fmt.Errorf("%w size %d: an inline ephemeral volume may have at most %d bytes; %s says so", backend.ErrOutOfRange, spec.Size.Required, allowed.MaxSize, allowed.Field)
	}
	if spec.Size.Required == 0 {
		spec.Size.Required = min(backend.DefaultSize, allowed.MaxSize)
	}
	spec.Size.Limit = allowed.MaxSize
	if spec.Pool != "" {
		return nil
	}
	for _, pool := range allowed.Pools {
		// One that is only out of reach has what was made in it: it is not passed over for another.
		if _, err := n.Backend.Capacity(ctx, pool); !errors.Is(err, backend.ErrNotFound) {
			spec.Pool = pool
			return nil
		}
	}
	return fmt.Errorf("%w: this node has no pool for inline ephemeral volumes, which may be in %s; %s says so",
		backend.ErrPrecondition, strings.Join(allowed.Pools, ", "), allowed.Field)
}
