package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/directory"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/backend/local/image"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// The layout of a pool; docs/pool-layout.md explains it.
const (
	poolFile    = "pool.json"
	buildingDir = ".tmp"
	trashDir    = ".trash"
	diskFile    = "disk.json" // belongs to the disk: package disk keeps its mark in it

	volumes   kind = "volumes"
	snapshots kind = "snapshots"
	groups    kind = "groups"
)

// kind is the kind of an entry, and the name of the directory for it.
type kind string

// pool is one open pool.
type pool struct {
	PoolConfig
	reserve backend.Reserve
	log     *slog.Logger
	root    *os.Root
	dir     *os.File          // root as a file
	device  string            // major:minor of the block device
	locked  *nodeops.FileLock // on pool.json, not the directory, which may be the root of the file system and locked by other programs
	engine  engine.Engine
	head    poolHead     // content of pool.json
	counted atomic.Bool  // this opening is included in the generation
	users   atomic.Int32 // operations that may be using the pool

	maintaining sync.Mutex         // held during maintenance, every keepEvery
	examining   sync.Mutex         // held while volumes in use are checked for errors
	trimming    sync.Mutex         // held while the space of deleted files is given back
	metering    singleflight.Group // of reads of I/O counters
	failed      atomic.Bool        // the file system was shut down by an error, which statfs does not show on new kernels
	evicting    sync.Mutex         // held while trash is removed for one caller, so that no other takes the freed space

	mu        sync.Mutex
	entries   map[kind]map[backend.ID]*record
	trash     map[string]*record // by place
	sightings backend.Sightings  // of the trash
	building  map[string]*record // by place
	// leftovers are the entries of building that are to be removed, by place.
	leftovers map[string]*leftover
	foreign   int64            // bytes that other programs use in the file system
	measured  map[string]int64 // space that snapshots use, by place; it does not change
	surveyed  bool
	health    health
	trimmed   backend.ID // the last volume whose space was given back; trimming guards it
	trimNext  time.Time  // when that of the next is
}

// record is one entry as last read or written. It is replaced, never modified.
type record struct {
	kind     kind
	id       backend.ID
	place    string // path in the pool
	meta     *meta  // nil if damaged
	damage   error
	charge   int64
	deleted  time.Time // when it was moved to the trash
	freeable int64     // bytes that its removal from the trash frees, at least
}

// openPool opens a pool's directory and reads it. It modifies only an empty directory, which it initializes as a pool
// if serve is set and no other pool is expected there.
func openPool(ctx context.Context, c PoolConfig, serve bool, log *slog.Logger) (*pool, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	keep, _ := backend.ParseReserve(c.Reserved) // complete has validated it
	p := &pool{
		PoolConfig: c,
		reserve:    keep,
		log:        log.With("pool", c.Name),
		entries:    map[kind]map[backend.ID]*record{},
		building:   map[string]*record{},
		health:     health{ailing: map[backend.ID]backend.Condition{}},
		leftovers:  map[string]*leftover{},
	}
	if err := p.open(ctx, serve); err != nil {
		p.close()
		return nil, fmt.Errorf("pool %s at %s: %w", c.Name, c.Path, err)
	}
	return p, nil
}

func (p *pool) open(ctx context.Context, serve bool) (err error) {
	if p.root, err = os.OpenRoot(p.Path); err != nil {
		return p.absent(err)
	}
	if p.dir, err = p.root.Open("."); err != nil {
		return err
	}
	if p.device, err = nodeops.DeviceOf(p.dir); err != nil {
		return err
	}
	if err := p.identify(serve); err != nil {
		return err
	}
	for _, d := range []string{string(volumes), string(snapshots), string(groups), buildingDir, trashDir} {
		if err := p.root.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if p.Engine == "directory" {
		p.engine, err = directory.Open(ctx, p.Path)
	} else {
		p.engine, err = image.Open(p.Path)
	}
	if err != nil {
		return err
	}
	return p.scan()
}

// lockWithin is longer than a child of a killed process can hold its lock: between fork and exec it has the parent's
// open files.
const lockWithin = time.Second

// take locks the pool for this process. While the expected pool is unknown, the generation does not change.
func (p *pool) take(ctx context.Context) error {
	if err := p.lock(ctx); err != nil || p.Expect.Unread {
		return err
	}
	if err := p.tryCount(); err != nil {
		return fmt.Errorf("pool %s at %s: %w", p.Name, p.Path, err)
	}
	return nil
}

// lock makes sure that only one process changes the pool, across hosts if it is on NFS. The kernel releases the lock
// when the process ends.
func (p *pool) lock(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	for {
		p.locked, err = lockPool(p.root)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%w: pool %s at %s cannot be locked: %w", backend.ErrUnavailable, p.Name, p.Path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: pool %s at %s is in use by another process (%w)", backend.ErrUnavailable, p.Name, p.Path, err)
		case <-time.After(lockWithin / 100):
		}
	}
}

// lockPool locks the current pool.json: the serving process replaces the file. It returns EWOULDBLOCK while another
// process has the lock.
func lockPool(root *os.Root) (*nodeops.FileLock, error) {
	open := func(flag int) (*os.File, error) { return root.OpenFile(poolFile, flag, 0) }
	for {
		locked, err := nodeops.Lock(open, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil || isPoolFile(root, locked.File) {
			return locked, err
		}
		locked.Close()
	}
}

func (p *pool) close() error {
	var errs []error
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.locked != nil {
		errs = append(errs, p.locked.Close())
	}
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	if p.root != nil {
		errs = append(errs, p.root.Close())
	}
	return errors.Join(errs...)
}

// scan updates the records from disk: another process may have restored a volume from the trash, or an administrator
// may have moved one away.
func (p *pool) scan() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range []kind{volumes, snapshots, groups} {
		names, err := readNames(p.root, string(k))
		if err != nil {
			return err
		}
		seen := make(map[backend.ID]*record, len(names))
		for _, name := range names {
			id, err := backend.ParseID(name)
			if err != nil {
				p.log.Warn("not an entry, left alone", "path", path.Join(string(k), name))
				continue
			}
			switch known := p.entries[k][id]; {
			case known == nil:
				seen[id] = p.read(k, id, path.Join(string(k), name))
			case known.damage != nil:
				seen[id] = p.readAgain(known)
			default:
				seen[id] = known
			}
		}
		p.entries[k] = seen
	}
	names, err := readNames(p.root, trashDir)
	if err != nil {
		return err
	}
	seen := make(map[string]*record, len(names))
	for _, name := range names {
		r := p.trash[path.Join(trashDir, name)]
		if r == nil && p.building[path.Join(buildingDir, name)] == nil { // otherwise it is being removed or restored
			r = p.readTrash(name)
		}
		if r != nil {
			seen[r.place] = r
		}
	}
	p.trash = seen
	return nil
}

// readAgain loads an entry that could not be read: its disk may have failed for a moment, or an administrator has
// repaired it.
func (p *pool) readAgain(r *record) *record {
	again := p.load(r.kind, r.id, r.place)
	if again.damage != nil {
		return r
	}
	p.log.Info("an entry can be read again", "place", r.place)
	return again
}

// read is load, which logs.
func (p *pool) read(k kind, id backend.ID, place string) *record {
	r := p.load(k, id, place)
	if r.damage != nil {
		p.log.Error("damaged entry", "place", place, "error", r.damage)
	}
	return r
}

// load reads an entry. An error is kept in its record, so that it does not hide other entries.
func (p *pool) load(k kind, id backend.ID, place string) *record {
	r := &record{kind: k, id: id, place: place}
	dir, err := p.root.OpenRoot(place)
	if err == nil {
		defer dir.Close()
		r.meta, err = readMeta(dir, id)
	}
	if err != nil {
		r.damage = fmt.Errorf("%s: %w; its data is in %s", place, err, path.Join(p.Path, place))
		if dir != nil {
			r.charge, _ = p.engine.Inspect(&engine.Entry{ID: id, Dir: dir, Content: &engine.Content{}})
		}
		return r
	}
	r.charge = r.meta.Charge
	if k == snapshots {
		r.charge = max(r.charge, smallestSnapshot) // an earlier release charged less
	}
	return r
}

func readNames(root *os.Root, dir string) ([]string, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// timedName returns the name of an entry in the trash, with the time of its deletion, or while it is built, with that time: what is
// left of an earlier attempt is in no one's way.
func timedName(k kind, id backend.ID, at time.Time) string {
	return fmt.Sprintf("%s.%s.%d", k, id, at.UnixNano())
}

func (p *pool) readTrash(name string) *record {
	k, rest, _ := strings.Cut(name, ".")
	s, at, _ := strings.Cut(rest, ".")
	nanos, errTime := strconv.ParseInt(at, 10, 64)
	id, err := backend.ParseID(s)
	if err != nil || errTime != nil || !slices.Contains([]kind{volumes, snapshots, groups}, kind(k)) {
		p.log.Warn("not an entry, left alone", "path", path.Join(trashDir, name))
		return nil
	}
	r := p.read(kind(k), id, path.Join(trashDir, name))
	r.deleted = time.Unix(0, nanos)
	return r
}
