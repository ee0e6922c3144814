//go:build ceph

// Package cephfs keeps volumes in a Ceph file system: a volume is a subvolume of one subvolume group, which is a pool. Many
// hosts use a volume at once without any server between them and the cluster.
//
// The manager of the cluster makes, grows, copies and removes subvolumes. What is remembered about them lies in extended
// attributes of the same directories; docs/pool-layout.md explains it.
package cephfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// Backend serves one subvolume group as a pool.
type Backend struct {
	ceph.Blocklist
	config  Config
	log     *slog.Logger
	ops     backend.Operations
	peeks   bool   // another process may have the pool, which is only read
	token   string // of this process, as the owner of the pool
	life    context.Context
	stop    context.CancelFunc
	keepers sync.WaitGroup
	cluster *ceph.Cluster

	opening chan struct{} // holds a token while no caller opens the pool

	mu      sync.Mutex
	pool    *pool // nil: it must be opened
	taken   bool  // it was open before
	working map[backend.ID]int
	gone    map[backend.ID]int // that are being deleted
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

// Open serves a pool until Close. It does not wait for the cluster: while that is out of reach, calls say so.
func Open(ctx context.Context, cluster *ceph.Cluster, config Config, log *slog.Logger) (*Backend, error) {
	b, err := newBackend(ctx, cluster, config, log)
	if err != nil {
		return nil, err
	}
	b.taken = config.Yields // then it is taken as one that was lost
	b.keepers.Go(b.keep)
	return b, nil
}

// Peek opens a pool that another process may be serving, to list what is in it. It takes and changes nothing.
func Peek(cluster *ceph.Cluster, config Config, log *slog.Logger) (*Backend, error) {
	b, err := newBackend(context.Background(), cluster, config, log)
	if err == nil {
		b.peeks = true
	}
	return b, err
}

func newBackend(ctx context.Context, cluster *ceph.Cluster, config Config, log *slog.Logger) (*Backend, error) {
	if err := config.complete(cluster.Config()); err != nil {
		return nil, err
	}
	log = log.With("pool", config.Name)
	b := &Backend{
		Blocklist: ceph.BlocklistOf(cluster), config: config, cluster: cluster, log: log, token: rand.Text(), opening: make(chan struct{}, 1),
		working: map[backend.ID]int{}, gone: map[backend.ID]int{},
	}
	b.opening <- struct{}{}
	b.life, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	return b, nil
}

// Close waits until no operation runs, or ctx ends, and leaves the file system. The connection to the cluster stays.
func (b *Backend) Close(ctx context.Context) error {
	b.stop()
	err := b.ops.Wait(ctx)
	b.mu.Lock()
	p := b.pool
	b.pool = nil
	b.mu.Unlock()
	if p != nil {
		err = errors.Join(err, p.close(ctx))
	}
	return err
}

// use returns the pool, which is opened if it is not. A caller that finds it closed while another one opens it waits.
func (b *Backend) use(ctx context.Context) (*pool, error) {
	if p := b.current(); p != nil {
		return p, nil
	}
	select {
	case <-b.opening:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: pool %s is being opened: %w", backend.ErrUnavailable, b.config.Name, ctx.Err())
	}
	defer func() { b.opening <- struct{}{} }()
	if p := b.current(); p != nil {
		return p, nil
	}
	if err := b.life.Err(); err != nil {
		return nil, fmt.Errorf("%w: pool %s: it was closed", backend.ErrUnavailable, b.config.Name)
	}
	p, err := b.open(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pool, b.taken = p, true
	return p, nil
}

func (b *Backend) current() *pool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool
}

// open takes the pool, and finishes what was left in it before any caller sees it.
func (b *Backend) open(ctx context.Context) (*pool, error) {
	if b.peeks {
		return b.look(ctx)
	}
	if err := b.mayTake(ctx); err != nil {
		return nil, err
	}
	p, err := b.enter(ctx, true)
	if err != nil {
		return nil, err
	}
	err = p.identify(ctx, b.token)
	if err == nil {
		err = b.tidy(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

// look enters the pool without taking it.
func (b *Backend) look(ctx context.Context) (*pool, error) {
	p, err := b.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	head, err := look(ctx, p, "reading which pool it is", (*group).head)
	switch {
	case gone(err) || err == nil && head == nil:
		err = fmt.Errorf("%w: there is no pool of Holdfast in the subvolume group %s of file system %s", backend.ErrNotFound, p.Group, p.in.FileSystem)
	case err == nil:
		p.id = head.ID
		return p, nil
	}
	return nil, errors.Join(err, p.close(ctx))
}

// enter mounts the file system.
func (b *Backend) enter(ctx context.Context, serve bool) (*pool, error) {
	keep, _ := backend.ParseReserve(b.config.Reserved) // complete has checked it
	p := &pool{
		Config: b.config, reserve: keep, log: b.log, cluster: b.cluster, in: b.cluster.Config(), life: b.life, lost: b.lose,
		promising: make(chan struct{}, 1), making: make(chan struct{}, mostMaking), building: map[string]bool{}, told: map[string]bool{},
	}
	p.promising <- struct{}{}
	for range mostMaking {
		p.making <- struct{}{}
	}
	client := ""
	if serve {
		client = p.client()
	}
	var (
		late    atomic.Bool // no caller waits for it any more
		mounted atomic.Pointer[cephfs.MountInfo]
	)
	leave := func() error {
		if fs := mounted.Swap(nil); fs != nil {
			return unmount(fs)
		}
		return nil
	}
	fs, err := ceph.Call(ctx, b.cluster, "mounting file system "+b.cluster.Config().FileSystem, func(conn *rados.Conn) (*cephfs.MountInfo, error) {
		fs, err := mount(conn, b.cluster.Config().FileSystem, client)
		if err != nil {
			return nil, err
		}
		if mounted.Store(fs); late.Load() {
			return nil, leave()
		}
		return fs, nil
	})
	if err != nil {
		late.Store(true)
		if mounted.Load() != nil { // just after the call had given up
			_, left := ceph.Call(ctx, b.cluster, "leaving the file system", func(*rados.Conn) (any, error) { return nil, leave() })
			err = errors.Join(err, left)
		}
		return nil, p.judge(err)
	}
	p.group = &group{fs: fs, dir: "/volumes/" + b.config.Group}
	return p, nil
}

// lose notes that the file system has shut out the client of a pool.
func (b *Backend) lose(p *pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool == p {
		b.pool = nil
		b.log.Warn("the file system has shut this client out")
		b.keepers.Go(func() { _ = p.close(b.life) }) // there is nothing left to save
	}
}
