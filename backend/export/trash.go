package export

import (
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// Undelete restores a volume and exports it with a new export id: the old one was freed by the deletion. A volume that
// cannot be exported yet is restored nevertheless; its Condition says why, and the export is retried.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "undelete", func(ctx context.Context) (*backend.Volume, error) {
		_, release, err := b.prepare(ctx, id)
		if err != nil {
			return nil, err
		}
		defer release()
		v, err := b.Storage.Undelete(ctx, id)
		if err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.ExportRevived)
		b.setState(id, &exportState{revived: true, fault: fmt.Errorf("%w: it comes from the trash and is being mounted", backend.ErrUnavailable)})
		_ = b.serve(ctx, v) // the error is recorded
		return b.show(v), nil
	})
}
