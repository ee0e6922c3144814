package export

import (
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// Trash lists what is in the trash of the backend beneath.
func (b *Backend) Trash(ctx context.Context) ([]backend.Trashed, error) {
	return b.Backend.Trash(ctx)
}

// Undelete serves a restored volume again, as another export: with its deletion the identity that clients knew ended. One
// that cannot be served yet is back nevertheless; its Condition says why, and it is tried again.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "undelete", func(ctx context.Context) (*backend.Volume, error) {
		_, release, err := b.prepare(ctx, id)
		if err != nil {
			return nil, err
		}
		defer release()
		v, err := b.Backend.Undelete(ctx, id)
		if err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.ExportRevived)
		b.stands(id, &standing{revived: true, fault: fmt.Errorf("%w: it comes from the trash and is being mounted", backend.ErrUnavailable)})
		_ = b.serve(ctx, v) // its standing keeps the error
		return b.show(v), nil
	})
}
