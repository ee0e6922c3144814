// Package export serves the volumes of another backend over NFS. Each volume is mounted on this host and exported
// before a caller gets it.
//
// What is on disk decides: every start exports all existing volumes, with the export ids that clients know.
package export

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

// Storage is what the wrapped backend must implement; package local does.
type Storage interface {
	backend.Storage
	backend.GroupSnapshotter
	backend.Trasher
	backend.PoolMemory
}

// Exporter exports directories. Both methods are idempotent.
type Exporter interface {
	// Put adds an export, or updates the one with that id.
	Put(ctx context.Context, e ganesha.Export) error
	// Remove ends an export and closes its open files. An unknown id is no error.
	Remove(ctx context.Context, id uint16) error
}

// Config configures a Backend.
type Config struct {
	Storage                  // required; closed by the caller, after the Backend
	ExportsDir string        // required: where volumes are mounted, each at its ID; used by no other process
	StateDir   string        // required: for the ledger of exports; as durable as the volumes, and not in one of them
	Exporter   Exporter      // required
	Port       int32         // at which clients find the exports; 0: that of NFS
	Defaults   Settings      // of volumes without labels for them
	Images     bool          // the wrapped backend keeps images, which may have any file system
	MaxExports int           // 0: the number of ids; at most the number of Loops, if those are given
	Loops      []string      // loop devices that this process was allocated; empty: any free one
	RetryEvery time.Duration // first delay before a failed export is retried, which then grows; 0: 10 s
	Patience   time.Duration // how long Open waits for a volume whose mount hangs, and ten times that if it was exported; 0: 30 s
	Log        *slog.Logger  // nil: nothing is logged
}

// abreast is the number of volumes that are mounted or unmounted concurrently.
const abreast = 8

// Backend exports the volumes of another backend, which itself takes snapshots: it finds the mounts of its volumes and freezes them.
type Backend struct {
	Config
	ledger  *ledger
	ops     backend.Operations
	stop    context.CancelFunc
	keepers sync.WaitGroup

	mu     sync.Mutex
	states map[backend.ID]*exportState
}

var _ Storage = (*Backend)(nil)

// Open mounts and exports all existing volumes. One that fails is retried until Close, and its Condition says why; the
// others are served.
func Open(ctx context.Context, c Config) (*Backend, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := openLedger(c.StateDir, c.MaxExports, len(all) > 0, c.Log)
	if err != nil {
		return nil, err
	}
	b := &Backend{Config: c, ledger: kept, states: map[backend.ID]*exportState{}}
	if err := b.sweep(ctx); err != nil {
		return nil, err
	}
	b.serveAll(ctx, all)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.keepers.Go(func() { b.retryLoop(keeping) })
	return b, nil
}

func (c *Config) complete() error {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.MaxExports = cmp.Or(c.MaxExports, mostIDs)
	c.RetryEvery = cmp.Or(c.RetryEvery, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	switch {
	case !filepath.IsAbs(c.ExportsDir) || !filepath.IsAbs(c.StateDir):
		return fmt.Errorf("%w: exports directory %s and state directory %s must be absolute", backend.ErrInvalid, backend.Quote(c.ExportsDir), backend.Quote(c.StateDir))
	case c.MaxExports < 0 || c.MaxExports > mostIDs:
		return fmt.Errorf("%w maximum of exports %d: it must be 1 to %d, or 0 for %d", backend.ErrInvalid, c.MaxExports, mostIDs, mostIDs)
	}
	if len(c.Loops) > 0 {
		c.MaxExports = min(c.MaxExports, len(c.Loops))
	}
	c.ExportsDir, c.StateDir = filepath.Clean(c.ExportsDir), filepath.Clean(c.StateDir)
	return c.Defaults.check()
}

// Close waits until no operation runs or ctx ends, and unmounts the volumes. Stop the exporter before: open files keep
// a volume mounted.
func (b *Backend) Close(ctx context.Context) error {
	b.stop()
	err := backend.Await(ctx, b.keepers.Wait) // a retry hangs on a disk that does not answer
	if err == nil {
		err = b.ops.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: volumes are still being worked on: %w", backend.ErrUnavailable, err)
	}
	var group errgroup.Group
	group.SetLimit(abreast)
	for _, id := range b.known() {
		group.Go(func() error { return b.unmount(ctx, id) })
	}
	err = group.Wait()
	b.endFence()
	return err
}
