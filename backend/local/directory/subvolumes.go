package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// subvolumes limits directories on btrfs: each is a subvolume whose quota group has a limit.
type subvolumes struct{ common }

var _ engine.Engine = (*subvolumes)(nil)

func (*subvolumes) Close() error { return nil }

func (en *subvolumes) Plan(spec backend.VolumeSpec, source *engine.Content) (engine.Content, int64, error) {
	if spec.Inodes > 0 {
		return engine.Content{}, 0, fmt.Errorf("%w: btrfs cannot limit the number of files (inodes %d); leave inodes out, or use a pool on xfs or ext4", backend.ErrInvalid, spec.Inodes)
	}
	return en.plan(spec, source)
}

func (*subvolumes) Make(_ context.Context, e *engine.Entry) error {
	if err := nodeops.CreateSubvolume(dataPath(e)); err != nil {
		return err
	}
	return nodeops.LimitSubvolume(dataPath(e), e.Content.Size)
}

func (*subvolumes) Copy(_ context.Context, e, source *engine.Entry) error {
	if err := nodeops.SnapshotSubvolume(dataPath(e), dataPath(source), e.Content.ReadOnly); err != nil {
		return err
	}
	if e.Content.ReadOnly {
		return nil
	}
	return nodeops.LimitSubvolume(dataPath(e), e.Content.Size)
}

func (*subvolumes) Finish(_ context.Context, e *engine.Entry, _ bool) error { return syncAll(e) }

// Frozen need not freeze one subvolume, since its snapshot is atomic; several have no common instant.
func (en *subvolumes) Frozen(ctx context.Context, e *engine.Entry, group string, do func(context.Context) error) error {
	if group == "" {
		return do(ctx)
	}
	return en.whileIdle(ctx, e, "several subvolumes cannot be frozen together", do)
}

func (en *subvolumes) Grow(_ context.Context, e *engine.Entry) error {
	return nodeops.LimitSubvolume(dataPath(e), e.Content.Size)
}

// ReconcileSize sets the recorded limit: the caller of an interrupted Grow repeats it.
func (en *subvolumes) ReconcileSize(e *engine.Entry) (bool, error) {
	return false, en.Grow(context.Background(), e)
}

func (*subvolumes) Remove(ctx context.Context, e *engine.Entry) error {
	if err := nodeops.DeleteSubvolume(ctx, dataPath(e)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	return nil
}

func (*subvolumes) Inspect(e *engine.Entry) (int64, backend.Condition) {
	if c, bad := missing(e); bad {
		return 0, c
	}
	used, err := nodeops.SubvolumeUsage(dataPath(e))
	if err != nil {
		return 0, backend.Abnormal("its usage cannot be read: %v", err)
	}
	switch nested, err := nodeops.HoldsSubvolumes(dataPath(e)); {
	case err != nil:
		return used, backend.Abnormal("its subvolumes cannot be listed: %v", err)
	case nested:
		return used, backend.Abnormal("a process has created a subvolume in it, to which the limit does not apply; docs/directory-quota.md says who can")
	}
	return used, backend.Condition{}
}

// Inodes is 0: btrfs allocates inodes on demand, in space that the limit counts.
func (*subvolumes) Inodes(*engine.Entry) int64 { return 0 }

func (*subvolumes) Unshared(e *engine.Entry) (int64, error) {
	return nodeops.SubvolumeUnshared(dataPath(e))
}

// Recover removes quota groups of subvolumes whose removal was interrupted.
func (en *subvolumes) Recover(context.Context) error {
	return nodeops.SweepQgroups(en.path)
}
