// Package export serves the volumes of another backend over NFS: each is mounted on this host and exported before a
// caller gets it.
//
// The disk is the truth: every start exports all volumes that are there, under the identities that clients know.
package export

import (
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

// Storage is what the backend of the exported volumes must implement, as package local does.
type Storage interface {
	backend.Backend
	backend.Expander
	backend.Snapshotter
	backend.GroupSnapshotter
	backend.Cloner
	backend.Trasher
}

// Exporter serves directories. Both methods are idempotent.
type Exporter interface {
	// Put adds an export, or changes the one with that ID.
	Put(ctx context.Context, e ganesha.Export) error
	// Remove ends an export and closes its open files; a missing one is no error.
	Remove(ctx context.Context, id uint16) error
}

// Config is what a Backend needs.
type Config struct {
	Backend    Storage // the caller closes it, after this one
	ExportsDir string  // where volumes are mounted, each under its ID; no other process uses it
	StateDir   string  // for the identities of exports; as durable as the volumes, and outside of them
	Exporter   Exporter
	Defaults   Settings      // of volumes without labels for them
	Images     bool          // the backend's volumes are images, so that they may have any file system
	MaxExports int           // 0: as many as there are IDs; never more than Loops, if these are given
	Loops      []string      // the devices that were lent to this process; empty: any that is free
	RetryEvery time.Duration // the delay before a volume that is not served is retried, which grows; 0: 10 s
	Patience   time.Duration // how long Open waits for one volume that hangs; 0: 30 s
	Log        *slog.Logger
}

// abreast is how many volumes are mounted or unmounted at the same time.
const abreast = 8

// Backend exports volumes.
type Backend struct {
	Config
	ledger  *ledger
	ops     backend.Operations
	stop    context.CancelFunc
	keepers sync.WaitGroup

	mu        sync.Mutex
	standings map[backend.ID]*standing
}

var (
	_ backend.Backend          = (*Backend)(nil)
	_ backend.Expander         = (*Backend)(nil)
	_ backend.Snapshotter      = (*Backend)(nil)
	_ backend.GroupSnapshotter = (*Backend)(nil)
	_ backend.Cloner           = (*Backend)(nil)
	_ backend.Trasher          = (*Backend)(nil)
	_ backend.PoolMemory       = (*Backend)(nil)
)

// Open mounts and exports every volume that is on disk. One that cannot be served is retried until Close, its Condition
// says why, and the others are served.
func Open(ctx context.Context, c Config) (*Backend, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	all, err := c.Backend.List(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := openLedger(c.StateDir, c.MaxExports, len(all) > 0, c.Log)
	if err != nil {
		return nil, err
	}
	b := &Backend{Config: c, ledger: kept, standings: map[backend.ID]*standing{}}
	if err := b.sweep(ctx); err != nil {
		return nil, err
	}
	b.bringBack(ctx, all)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.keepers.Go(func() { b.keep(keeping) })
	return b, nil
}

func (c *Config) complete() error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxExports == 0 {
		c.MaxExports = mostIDs
	}
	if c.RetryEvery == 0 {
		c.RetryEvery = 10 * time.Second
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	switch {
	case c.Backend == nil || c.Exporter == nil:
		return fmt.Errorf("%w: an export backend needs a backend and an exporter", backend.ErrInvalid)
	case !filepath.IsAbs(c.ExportsDir) || !filepath.IsAbs(c.StateDir):
		return fmt.Errorf("%w: exports directory %s and state directory %s must be absolute", backend.ErrInvalid, backend.Quote(c.ExportsDir), backend.Quote(c.StateDir))
	case c.MaxExports < 0 || c.MaxExports > mostIDs:
		return fmt.Errorf("%w maximum of exports %d: it must be 1 to %d, or 0 for %d", backend.ErrInvalid, c.MaxExports, mostIDs, mostIDs)
	case c.RetryEvery < 0 || c.Patience < 0:
		return fmt.Errorf("%w: trying again every %s, waiting for %s; neither may be negative", backend.ErrInvalid, c.RetryEvery, c.Patience)
	}
	if len(c.Loops) > 0 {
		c.MaxExports = min(c.MaxExports, len(c.Loops))
	}
	c.ExportsDir, c.StateDir = filepath.Clean(c.ExportsDir), filepath.Clean(c.StateDir)
	return c.Defaults.check()
}

// Close waits until no operation runs, or ctx ends, and unmounts the volumes. Stop the exporter before: open files keep
// their volume mounted.
func (b *Backend) Close(ctx context.Context) error {
	b.stop()
	err := b.kept(ctx)
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

// kept waits until no more operations start. It may block on a disk that does not answer.
func (b *Backend) kept(ctx context.Context) error {
	done := make(chan struct{})
	go func() { b.keepers.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
