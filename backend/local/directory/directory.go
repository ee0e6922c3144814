// Package directory keeps a volume as a directory with a quota. It has no overhead, but root in a container may evade
// the limit by changing the quota id; docs/directory-quota.md says when.
package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// data is the name of the directory in its entry. The metadata beside it does not count against the quota.
const data = "data"

const smallest = 1 << 20

// Open returns the engine for the file system at path.
func Open(ctx context.Context, path string) (engine.Engine, error) {
	features, err := nodeops.Probe(path)
	if err != nil {
		return nil, err
	}
	switch features.FSType {
	case "btrfs":
		if err := nodeops.EnableBtrfsQuota(ctx, path); err != nil {
			return nil, fmt.Errorf("enabling btrfs quotas of %s: %w", path, err)
		}
		return &subvolumes{common{path: path, fsType: "btrfs", shares: true}}, nil
	case "xfs", "ext4":
		quota, err := nodeops.OpenProjectQuota(path)
		if err != nil {
			return nil, err
		}
		return &projects{common{path: path, fsType: features.FSType, shares: features.Reflink}, quota}, nil
	}
	return nil, fmt.Errorf("%w: %s is on %s, which cannot limit directories; use xfs or ext4 mounted with prjquota, or btrfs, or the engine Image", backend.ErrInvalid, path, features.FSType)
}

// common has what both engines share.
type common struct {
	path   string
	fsType string
	shares bool // files can share blocks
}

// FileSystem says whether the copies of files share blocks.
func (c *common) FileSystem() (string, backend.SnapshotCost) {
	if c.shares {
		return c.fsType, backend.SharesBlocks
	}
	return c.fsType, backend.CopiesAll
}

func (c *common) plan(spec backend.VolumeSpec, source *engine.Content) (engine.Content, int64, error) {
	content := engine.Content{Mode: backend.Filesystem, FSType: c.fsType, Provisioning: backend.Thin, Inodes: spec.Inodes}
	refuse := func(format string, args ...any) (engine.Content, int64, error) {
		return content, 0, fmt.Errorf("%w: engine Directory "+format+"; engine Image can", append([]any{backend.ErrInvalid}, args...)...)
	}
	switch {
	case cmp.Or(spec.Mode, backend.Filesystem) != backend.Filesystem:
		return refuse("cannot serve volumes of mode %s", spec.Mode)
	case spec.FSType != "" && spec.FSType != c.fsType:
		return refuse("keeps files on the pool's own %s and cannot make %s", c.fsType, backend.Quote(spec.FSType))
	case spec.Provisioning == backend.Thick:
		return refuse("cannot preallocate space (provisioning Thick)")
	case len(spec.MkfsOptions) > 0:
		return refuse("makes no file system, so mkfsOptions %v cannot be applied", spec.MkfsOptions)
	}
	if source != nil {
		return content, source.Size, nil
	}
	return content, smallest, nil
}

func dataPath(e *engine.Entry) string { return filepath.Join(e.Dir.Name(), data) }

// Access is the directory, which nodes bind-mount.
func (*common) Access(e *engine.Entry) backend.Access {
	return backend.Access{Directory: dataPath(e)}
}

// InUse returns the mounts of the directory, under whatever path the pool is mounted.
func (c *common) InUse(e *engine.Entry) (string, error) {
	mounts, err := nodeops.Mounts()
	if err != nil {
		return "", err
	}
	own, err := e.Dir.Stat(data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	inside := strings.TrimPrefix(dataPath(e), c.path)
	var targets []string
	for _, m := range mounts {
		if m.FSType != c.fsType || !strings.HasSuffix(m.Root, inside) {
			continue
		}
		// Another pool may have a volume of the same ID.
		if shown, err := os.Stat(m.Target); err == nil && os.SameFile(shown, own) {
			targets = append(targets, m.Target)
		}
	}
	return strings.Join(targets, ", "), nil
}

// missing returns whether the directory is missing or not a directory.
func missing(e *engine.Entry) (backend.Condition, bool) {
	info, err := e.Dir.Lstat(data)
	switch {
	case err != nil:
		return backend.Abnormal("its directory cannot be read: %v; restore it from a snapshot or backup", err), true
	case !info.IsDir():
		return backend.Abnormal("its directory is a %s", info.Mode().Type()), true
	}
	return backend.Condition{}, false
}

// idle fails if the directory is in use, since directories cannot be frozen.
func (c *common) idle(e *engine.Entry, why string) error {
	by, err := c.InUse(e)
	if err == nil && by != "" {
		err = fmt.Errorf("%w: volume %s is in use (%s) and %s; stop the pods that use it first, or use a pool of the engine Image", backend.ErrPrecondition, e.ID, by, why)
	}
	return err
}

// whileIdle runs do, and fails if the entry is in use before it or after it.
func (c *common) whileIdle(ctx context.Context, e *engine.Entry, why string, do func(context.Context) error) error {
	if err := c.idle(e, why); err != nil {
		return err
	}
	return errors.Join(do(ctx), c.idle(e, why))
}

// syncAll syncs the whole file system of an entry: a tree has too many files to sync one by one.
func syncAll(e *engine.Entry) error {
	d, err := e.Dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
