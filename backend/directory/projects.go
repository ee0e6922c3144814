package directory

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/crashpoint"
	"github.com/holdfast-storage/holdfast/backend/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// projects limits directories of xfs and ext4 by project quotas.
type projects struct {
	common
	quota *nodeops.ProjectQuota
}

var _ engine.Engine = (*projects)(nil)

func (en *projects) Close() error { return en.quota.Close() }

func (en *projects) Plan(spec backend.VolumeSpec, source *engine.Content) (engine.Content, int64, error) {
	return en.plan(spec, source)
}

// Make reserves a quota id, noting it in the metadata before the kernel knows of it, and makes the directory.
func (en *projects) Make(_ context.Context, e *engine.Entry) error {
	limits := nodeops.Limits{Bytes: e.Content.Size, Inodes: e.Content.Inodes}
	id, err := en.quota.Reserve(limits, func(id uint32) error {
		e.Content.Project = id
		return e.Save()
	})
	if err != nil {
		return err
	}
	if err := e.Dir.Mkdir(data, 0o755); err != nil {
		return err
	}
	return nodeops.SetProject(dataPath(e), id)
}

// Copy copies the tree. A snapshot takes no more writes, so it needs no limit and no id.
func (en *projects) Copy(ctx context.Context, e, source *engine.Entry) error {
	if e.Content.ReadOnly {
		if err := e.Dir.Mkdir(data, 0o700); err != nil {
			return err
		}
	} else if err := en.Make(ctx, e); err != nil {
		return err
	}
	return nodeops.CopyTree(ctx, dataPath(e), dataPath(source))
}

func (en *projects) Finish(_ context.Context, e *engine.Entry, _ bool) error { return syncAll(e) }

func (en *projects) Quiet(_ context.Context, e *engine.Entry, _ bool) (func() error, error) {
	idle := en.idle(e, "a directory of "+en.fsType+" cannot be copied at one instant while it is written")
	return idle, idle()
}

func (en *projects) Grow(_ context.Context, e *engine.Entry) error {
	return en.quota.SetLimits(e.Content.Project, nodeops.Limits{Bytes: e.Content.Size, Inodes: e.Content.Inodes})
}

// Settle puts the recorded limit back: a growth that was not answered is asked for again.
func (en *projects) Settle(e *engine.Entry) (bool, error) {
	return false, en.Grow(context.Background(), e)
}

// Remove frees the id last: until the files are gone they count against it.
func (en *projects) Remove(_ context.Context, e *engine.Entry) error {
	if err := e.Dir.RemoveAll(data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	if e.Content.Project == 0 {
		return nil
	}
	return en.quota.Release(e.Content.Project)
}

func (en *projects) Inspect(e *engine.Entry) (int64, backend.Condition) {
	if c, bad := missing(e); bad {
		return 0, c
	}
	if e.Content.ReadOnly {
		return 0, backend.Condition{}
	}
	used, _, err := en.quota.Usage(e.Content.Project)
	if err != nil {
		return 0, abnormal("its usage cannot be read: %v", err)
	}
	id, inherit, err := nodeops.ProjectOf(dataPath(e))
	switch {
	case err != nil:
		return used, abnormal("its quota id cannot be read: %v", err)
	case id != e.Content.Project || !inherit:
		return used, abnormal("its directory has quota id %d (inherited: %t), not %d: something inside changed it and the limit does not hold; docs/directory-quota.md says who can", id, inherit, e.Content.Project)
	}
	return used, backend.Condition{}
}

// Recover has nothing to do: what a killed process reserved is named in the metadata of the entry it was building.
func (*projects) Recover(context.Context) error { return nil }
