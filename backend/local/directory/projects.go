package directory

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// projects limits directories on xfs and ext4 with project quotas.
type projects struct {
	common
	quota *nodeops.ProjectQuota
}

var _ engine.Engine = (*projects)(nil)

func (en *projects) Close() error { return en.quota.Close() }

func (en *projects) Plan(spec backend.VolumeSpec, source *engine.Content) (engine.Content, int64, error) {
	c, smallest, err := en.plan(spec, source)
	if c.Inodes == 0 {
		c.InodesLeast = leastInodes(source)
	}
	return c, smallest, err
}

// Make reserves a quota id. The reservation lasts until the directory has the id, which is then in use until the
// directory is removed.
func (en *projects) Make(_ context.Context, e *engine.Entry) error {
	_, err := en.quota.Reserve(en.limits(e), func(id uint32) error {
		e.Content.Project = id
		if err := e.Save(); err != nil {
			return err
		}
		if err := e.Dir.Mkdir(unmarked, 0o755); err != nil {
			return err
		}
		if err := nodeops.SetProject(filepath.Join(e.Dir.Name(), unmarked), id); err != nil {
			return err
		}
		return e.Dir.Rename(unmarked, data)
	})
	return err
}

// unmarked is the name of the directory until it has its quota id.
const unmarked = data + ".new"

func (*projects) limits(e *engine.Entry) nodeops.Limits {
	return nodeops.Limits{Bytes: e.Content.Size, Inodes: inodeLimit(e.Content)}
}

// Copy copies the tree. A snapshot is never written to, so it needs neither a limit nor an id.
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

func (en *projects) Frozen(ctx context.Context, e *engine.Entry, _ string, do func(context.Context) error) error {
	return en.whileIdle(ctx, e, "a directory of "+en.fsType+" cannot be copied at one instant while it is written", do)
}

func (en *projects) Grow(_ context.Context, e *engine.Entry) error {
	return en.quota.SetLimits(e.Content.Project, en.limits(e))
}

// ReconcileSize sets the recorded limit: the caller of an interrupted Grow repeats it.
func (en *projects) ReconcileSize(e *engine.Entry) (bool, error) {
	return false, en.Grow(context.Background(), e)
}

// Remove removes the limits first; the id stays in use until the files are removed. Without a directory the id does not
// belong to this entry yet, or no longer does.
func (en *projects) Remove(ctx context.Context, e *engine.Entry) error {
	_, err := e.Dir.Lstat(data)
	if err == nil && e.Content.Project != 0 {
		err = en.quota.Release(e.Content.Project)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	crashpoint.Here(crashpoint.DeletePartly)
	return errors.Join(nodeops.RemoveTree(ctx, e.Dir, data), nodeops.RemoveTree(ctx, e.Dir, unmarked))
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
		return 0, backend.Abnormal("its usage cannot be read: %v", err)
	}
	limited, err := en.quota.Limited(e.Content.Project, en.limits(e))
	if err != nil {
		return used, backend.Abnormal("its limits cannot be read: %v", err)
	}
	id, inherit, err := nodeops.ProjectOf(dataPath(e))
	switch {
	case !limited:
		return used, backend.Abnormal("the file system has no limit for its quota id %d: it is set again when the node pod starts, whose log says why that failed; to set it by hand, see docs/directory-quota.md", e.Content.Project)
	case err != nil:
		return used, backend.Abnormal("its quota id cannot be read: %v", err)
	case id != e.Content.Project || !inherit:
		return used, backend.Abnormal("its directory has quota id %d (inherited: %t), not %d: a process has changed it and the limit is not enforced; docs/directory-quota.md says who can", id, inherit, e.Content.Project)
	}
	return used, backend.Condition{}
}

// Inodes is unknown for a snapshot, which has no quota id.
func (en *projects) Inodes(e *engine.Entry) int64 {
	if e.Content.Project == 0 {
		return 0
	}
	_, inodes, err := en.quota.Usage(e.Content.Project)
	if err != nil {
		return 0
	}
	return int64(inodes)
}

// Unshared is unknown if files may share blocks: each file would have to be queried.
func (en *projects) Unshared(e *engine.Entry) (int64, error) {
	if en.fsType != "ext4" {
		return 0, nil
	}
	used, _ := en.Inspect(e)
	return used, nil
}

// Recover does nothing: what a killed process reserved is named in the metadata of its entry.
func (*projects) Recover(context.Context) error { return nil }
