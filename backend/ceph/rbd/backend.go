//go:build ceph

package rbd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// Backend serves one pool of images.
type Backend struct {
	Config
	ceph.Blocklist
	cluster    *ceph.Cluster
	ops        backend.Operations
	log        *slog.Logger
	cookie     string
	peeks      bool                    // another process may have the pool, which is only read
	current    atomic.Pointer[session] // nil: this process does not have the pool
	closed     atomic.Bool
	giving     sync.Mutex // held while trash is removed for room
	formatting sync.Mutex // held while a file system is in memory
	stop       context.CancelFunc
	keeper     sync.WaitGroup
	usages     usages
	flatten    chan string // names of images that need too many others
	deleted    backend.Sightings
}

var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.Expander    = (*Backend)(nil)
	_ backend.Completer   = (*Backend)(nil)
	_ backend.Snapshotter = (*Backend)(nil)
	_ backend.Cloner      = (*Backend)(nil)
	_ backend.Trasher     = (*Backend)(nil)
	_ backend.Fencer      = (*Backend)(nil)
)

// Open serves a pool until Close. It does not wait for the cluster: as long as that cannot be reached, calls fail with
// ErrUnavailable.
func Open(ctx context.Context, cluster *ceph.Cluster, c Config, log *slog.Logger) (*Backend, error) {
	if err := c.complete(cluster.Config()); err != nil {
		return nil, err
	}
	b := &Backend{Config: c, Blocklist: ceph.BlocklistOf(cluster), cluster: cluster, log: log.With("pool", c.Name), cookie: newCookie(), flatten: make(chan string, mostFlattened)}
	keeping, stop := context.WithCancel(ceph.Background(context.WithoutCancel(ctx)))
	b.stop = stop
	b.keeper.Go(func() { b.keep(keeping) })
	return b, nil
}

// Peek opens a pool that another process may be serving, to list what is in it. It takes and changes nothing.
func Peek(cluster *ceph.Cluster, c Config, log *slog.Logger) (*Backend, error) {
	if err := c.complete(cluster.Config()); err != nil {
		return nil, err
	}
	return &Backend{Config: c, cluster: cluster, log: log.With("pool", c.Name), peeks: true, stop: func() {}}, nil
}

// Close waits until no operation runs, or ctx ends, and gives the pool back. It leaves the cluster's connection open.
func (b *Backend) Close(ctx context.Context) error {
	b.closed.Store(true)
	b.stop()
	kept := make(chan struct{})
	go func() { b.keeper.Wait(); close(kept) }()
	select {
	case <-kept:
	case <-ctx.Done():
		return fmt.Errorf("%w: pool %s does not answer: %w", backend.ErrUnavailable, b.Name, ctx.Err())
	}
	if err := b.ops.Wait(ctx); err != nil {
		return err
	}
	if s := b.current.Swap(nil); s != nil {
		return s.release()
	}
	return nil
}

func (b *Backend) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, nil)
}

func (b *Backend) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceVolume, ID: source})
}

func (b *Backend) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.create(ctx, spec, &backend.Source{Kind: backend.SourceSnapshot, ID: snapshot})
}

func (b *Backend) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if _, err := backend.ParseID(string(id)); err != nil {
		return nil, fmt.Errorf("%w: volume %s", backend.ErrNotFound, backend.Quote(string(id)))
	}
	r, err := call(ctx, b, "looking for volume "+string(id), func(s *session) (*record, error) {
		r, err := s.find(volumes, id, nil)
		if r != nil {
			b.measureUsed(s, r, time.Now().Add(measuring))
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("%w: volume %s in pool %s", backend.ErrNotFound, id, b.Name)
	}
	return b.volume(r), nil
}

// find looks for what is complete, or damaged.
func (b *Backend) find(ctx context.Context, k kind, id backend.ID) (*record, error) {
	return call(ctx, b, fmt.Sprintf("looking for %s %s", k, id), func(s *session) (*record, error) { return s.find(k, id, nil) })
}

// find looks for it; entries are those of the ledger, nil: they are read.
func (s *session) find(k kind, id backend.ID, entries map[string]promise) (*record, error) {
	r, err := s.current(k, id, entries)
	if err != nil || r != nil && !errors.Is(r.damage, errIncomplete) {
		return r, err
	}
	name := imageName(k, id)
	now, err := s.ledger.get(name) // entries may be from before it was deleted
	if err != nil || now[name].State != complete {
		return nil, err
	}
	if r == nil {
		return &record{name: name, kind: k, id: id, size: now[name].Charge, damage: errMissing}, nil
	}
	r.damage = errReplaced
	return r, nil
}

func (b *Backend) List(ctx context.Context) ([]*backend.Volume, error) {
	all, err := call(ctx, b, "listing volumes", func(s *session) ([]*record, error) {
		entries, err := s.ledger.all()
		if err != nil {
			return nil, err
		}
		until := time.Now().Add(measuring)
		return s.list(volumes, entries, func(r *record) { b.measureUsed(s, r, until) })
	})
	if err != nil {
		return nil, err
	}
	b.usages.keep(all)
	var found []*backend.Volume
	for _, r := range all {
		found = append(found, b.volume(r))
	}
	return found, nil
}

// list reads all images of a kind, in the order of IDs, and shows them to read as they come: those that Ceph has, and those that
// are complete by the entries of the ledger.
func (s *session) list(k kind, entries map[string]promise, read func(*record)) ([]*record, error) {
	listed, err := rbd.GetImageNames(s.ioctx)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, name := range listed {
		names[name] = true
	}
	for name, p := range entries {
		if p.State == complete {
			names[name] = true
		}
	}
	var ids []backend.ID
	for name := range names {
		if is, id, ours := parseName(name); ours && is == k {
			ids = append(ids, id)
		}
	}
	var (
		mu   sync.Mutex
		all  []*record
		errs []error
	)
	atOnce(ids, func(id backend.ID) {
		r, err := s.find(k, id, entries)
		if r != nil {
			read(r)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
		if r != nil {
			all = append(all, r)
		}
	})
	slices.SortFunc(all, func(x, y *record) int { return cmp.Compare(x.id, y.id) })
	return all, errors.Join(errs...)
}

// readers is how many images are read at once.
const readers = 8

// atOnce calls f with each ID, in several goroutines.
func atOnce(ids []backend.ID, f func(backend.ID)) {
	var wait sync.WaitGroup
	next := make(chan backend.ID)
	for range readers {
		wait.Go(func() {
			for id := range next {
				f(id)
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	wait.Wait()
}

// volume shows a record as callers know it.
func (b *Backend) volume(r *record) *backend.Volume {
	v := &backend.Volume{ID: r.id, Pool: b.Name, Used: b.usages.get(r.image).bytes}
	c := b.cluster.Config()
	v.Access.RBD = &backend.RBD{
		Cluster: c.ForNodes(),
		Pool:    c.Pool, Namespace: c.Namespace, Image: r.name, ImageID: r.image,
	}
	if r.meta == nil {
		v.Condition = backend.Abnormal("%v", r.damaged())
		return v
	}
	m := r.meta
	v.Name, v.Size, v.Mode, v.FSType, v.FSSize, v.Provisioning = m.Name, m.Size, m.Mode, m.FSType, m.FSSize, m.Provisioning
	v.MkfsOptions, v.Inodes, v.Labels, v.OnNodeLoss, v.Source, v.Created = m.MkfsOptions, m.Inodes, m.Labels, m.OnNodeLoss, m.Source, m.Created
	v.Incomplete = m.Incomplete
	if r.size < m.Size {
		v.Condition = backend.Abnormal("image %s has %d bytes, recorded are %d", r.name, r.size, m.Size)
	}
	return v
}

// check fails for an image whose metadata is not known. There may be none.
func (r *record) check() error {
	if r == nil || r.meta != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", backend.ErrPrecondition, r.damaged())
}

func (r *record) damaged() error { return fmt.Errorf("image %s: %w", r.name, r.damage) }
