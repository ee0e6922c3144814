// Package site serves one pool in a Ceph cluster, with the engine that it is configured for, as long as its process runs:
// also before the cluster can be reached, while it cannot, and after its key was changed.
//
// What speaks to Ceph is built with the tag ceph only.
package site

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// Site is a pool that is served. While the pool cannot be used its calls fail with ErrUnavailable, and say why.
type Site interface {
	backend.Backend
	backend.Expander
	backend.Snapshotter
	backend.Cloner
	backend.Trasher
	backend.PoolMemory
	backend.Warner
	backend.NodeUsers // where each node has a user of its own
	// Run connects to the cluster, and follows its state and that of the key, until ctx ends.
	Run(ctx context.Context) error
	// Try says why the pool could not be served from now on. It disturbs no process that serves it.
	Try(ctx context.Context) error
	// Ready says why the pool cannot be used; nil if it can.
	Ready(ctx context.Context) error
	Measured
	// Close waits until no operation runs, or ctx ends, and leaves the cluster.
	Close(ctx context.Context) error
}

// View is a pool as a command sees it, whether or not a process serves it.
type View interface {
	reader
	// Undelete takes a volume out of the trash. It fails with ErrUnavailable while a process serves the pool.
	Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error)
}

// reader is what an engine does with a pool that it only reads.
type reader interface {
	List(ctx context.Context) ([]*backend.Volume, error)
	ListSnapshots(ctx context.Context) ([]*backend.Snapshot, error)
	Trash(ctx context.Context) ([]backend.Trashed, error)
	Close(ctx context.Context) error
}

// The engines.
const (
	RBD    = "rbd"
	CephFS = "cephfs"
)

// Config says which pool is served.
type Config struct {
	Pool    string // its name in Holdfast
	Engine  string
	Ceph    ceph.Config // but for the key; Namespace is the subvolume group of CephFS
	KeyFile string      // has the key, and may be replaced at any time
	// NodeKeyFile has the key of the user of nodes, and may be replaced at any time, or be missing; empty: what nodes may is
	// not looked at.
	NodeKeyFile string
	Overcommit  float64 // how often each byte may be promised; 0: once
	Reserved    string  // kept free: bytes such as 10Gi, or a share such as 5% (default)
	// TrashRetention is how long a deleted volume can be restored; 0: a day, below 0: not at all.
	TrashRetention time.Duration
}

const leastOvercommit, mostOvercommit = 0.1, 100

// Complete chooses what was left to choose, and refuses what cannot be.
func (c *Config) Complete() error {
	c.Engine, c.Overcommit, c.Reserved = strings.ToLower(c.Engine), cmp.Or(c.Overcommit, 1), cmp.Or(c.Reserved, backend.DefaultReserve)
	if err := c.Ceph.CompleteButKey(); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w "+format, append([]any{backend.ErrInvalid}, args...)...)
	}
	switch {
	case !backend.IsID(c.Pool) || strings.HasSuffix(c.Pool, "-"): // which is a part of the name of its StorageNode
		return refuse("pool %s: it must be the name of a pool of the StorageCluster, 1 to 63 of a-z, 0-9 and -", backend.Quote(c.Pool))
	case c.Engine != RBD && c.Engine != CephFS:
		return refuse("engine %s: it must be RBD or CephFS", backend.Quote(c.Engine))
	case c.Engine == RBD && (c.Ceph.Pool == "" || c.Ceph.FileSystem != ""):
		return refuse("engine RBD: it needs the name of a pool of the Ceph cluster, and no file system")
	case c.Engine == CephFS && (c.Ceph.FileSystem == "" || c.Ceph.Pool != ""):
		return refuse("engine CephFS: it needs the name of a file system of the Ceph cluster, and no pool")
	case c.Ceph.FSID == "":
		return refuse("fsid \"\": it must be the UUID that `ceph fsid` prints")
	case !filepath.IsAbs(c.KeyFile):
		return refuse("file of the key %s: it must be an absolute path", backend.Quote(c.KeyFile))
	case c.NodeKeyFile != "" && !filepath.IsAbs(c.NodeKeyFile):
		return refuse("file of the key of nodes %s: it must be an absolute path", backend.Quote(c.NodeKeyFile))
	case !(c.Overcommit >= leastOvercommit && c.Overcommit <= mostOvercommit): // also refuses NaN
		return refuse("overcommit %g: it must be %g to %d", c.Overcommit, leastOvercommit, mostOvercommit)
	}
	if _, err := backend.ParseReserve(c.Reserved); err != nil {
		return refuse("%w", err)
	}
	return nil
}
