package export

import (
	"context"

	"github.com/holdfast-storage/holdfast/backend"
)

// The wrapped backend takes snapshots: it finds the mounts of its volumes and freezes them.

func (b *Backend) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	return b.Backend.Snapshot(ctx, spec)
}

func (b *Backend) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return b.Backend.DeleteSnapshot(ctx, id)
}

func (b *Backend) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	return b.Backend.GetSnapshot(ctx, id)
}

func (b *Backend) ListSnapshots(ctx context.Context) ([]*backend.Snapshot, error) {
	return b.Backend.ListSnapshots(ctx)
}

func (b *Backend) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	return b.Backend.SnapshotGroup(ctx, spec)
}

func (b *Backend) DeleteGroup(ctx context.Context, id backend.ID) error {
	return b.Backend.DeleteGroup(ctx, id)
}

func (b *Backend) GetGroup(ctx context.Context, id backend.ID) (*backend.Group, error) {
	return b.Backend.GetGroup(ctx, id)
}
