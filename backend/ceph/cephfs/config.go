//go:build ceph

package cephfs

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// Config says which subvolume group is a pool, and how much of it may be promised.
type Config struct {
	Name           string        // by which requests name the pool; empty: as its group
	Group          string        // of subvolumes, for this pool alone; "holdfast" if empty. It is made where there is none
	Overcommit     float64       // how often each byte may be promised; 0 means 1.0
	Reserved       string        // kept free: bytes such as 10Gi, or a share such as 5% (default)
	TrashRetention time.Duration // how long a deleted volume can be restored; 0 means a day, below 0 not at all
	Yields         bool          // leaves the pool to a process that has served it lately
}

const (
	// DefaultTrashRetention is how long a deleted volume can be restored, unless its room is needed before.
	DefaultTrashRetention = 24 * time.Hour

	DefaultGroup   = "holdfast"
	mostOvercommit = 100
)

// cephName is what Ceph takes as a name, but for those that mean a directory or one of Ceph's own groups.
var cephName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// complete checks the configuration and fills its defaults.
func (c *Config) complete(of ceph.Config) error {
	c.Group = cmp.Or(c.Group, DefaultGroup)
	c.Name, c.Overcommit = cmp.Or(c.Name, c.Group), cmp.Or(c.Overcommit, 1)
	c.TrashRetention = cmp.Or(c.TrashRetention, DefaultTrashRetention)
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w pool %s: "+format, append([]any{backend.ErrInvalid, backend.Quote(c.Name)}, args...)...)
	}
	switch {
	case !backend.IsID(c.Name):
		return invalid("name must be 1 to 63 of a-z, 0-9 and -, and not begin with -")
	case !cephName.MatchString(of.FileSystem):
		return invalid("file system %s; it must be the name of a Ceph file system, as `ceph fs ls` prints it", backend.Quote(of.FileSystem))
	case !cephName.MatchString(c.Group):
		return invalid("subvolume group %s; it must be 1 to 128 of a-z, A-Z, 0-9, -, _ and ., and begin with a letter or digit", backend.Quote(c.Group))
	case !(c.Overcommit > 0 && c.Overcommit <= mostOvercommit): // also refuses NaN
		return invalid("overcommit %v; it must be above 0, at most %d", c.Overcommit, mostOvercommit)
	}
	if _, err := backend.ParseReserve(c.Reserved); err != nil {
		return invalid("%w", err)
	}
	return nil
}
