//go:build ceph

package cephfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/cephfs/admin"
	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// pool is a subvolume group that this process serves, until it ends or another one takes its place.
type pool struct {
	Config
	reserve backend.Reserve
	log     *slog.Logger
	cluster *ceph.Cluster
	in      ceph.Config     // of the cluster
	life    context.Context // of the process that serves it
	group   *group
	id      string
	lost    func(*pool) // called when the file system has shut this client out

	using sync.RWMutex // while the group is in use; it must not be once the file system was left
	left  bool

	promising chan struct{} // holds a token while no operation promises room, nor takes a volume out of the trash
	making    chan struct{} // holds a token for each volume that may be in the making

	mu       sync.Mutex
	building map[string]bool
	freed    []gift
	told     map[string]bool // what was reported

	deleted backend.Sightings
}

// mostMaking bounds how many volumes are made at once: what is being made is listed in attributes of the group, whose room
// is small, and the manager makes one after the other anyhow.
const mostMaking = 16

// look runs f on the group within the limit of time.
func look[T any](ctx context.Context, p *pool, what string, f func(*group) (T, error)) (T, error) {
	value, err := ceph.Call(ctx, p.cluster, what, func(*rados.Conn) (value T, err error) {
		p.using.RLock()
		defer p.using.RUnlock()
		if p.left {
			return value, fmt.Errorf("%s: %w", what, syscall.ENOTCONN)
		}
		return f(p.group)
	})
	return value, p.judge(err)
}

// touch is look for what returns nothing.
func (p *pool) touch(ctx context.Context, what string, f func(*group) error) error {
	_, err := look(ctx, p, what, func(g *group) (any, error) { return nil, f(g) })
	return err
}

// manage runs a command of the manager within the limit of time.
func manage[T any](ctx context.Context, p *pool, what string, f func(*admin.FSAdmin) (T, error)) (T, error) {
	value, err := ceph.Call(ctx, p.cluster.Manager(), what, func(conn *rados.Conn) (T, error) { return f(admin.NewFromConn(conn)) })
	return value, p.judge(err)
}

func (p *pool) manage(ctx context.Context, what string, f func(*admin.FSAdmin) error) error {
	_, err := manage(ctx, p, what, func(a *admin.FSAdmin) (any, error) { return nil, f(a) })
	return err
}

// judge adds what an error means here.
func (p *pool) judge(err error) error {
	switch {
	case err == nil:
		return nil
	case hasErrno(err, syscall.ESHUTDOWN) || hasErrno(err, syscall.ENOTCONN):
		p.lost(p)
	case hasErrno(err, syscall.EAGAIN) || hasErrno(err, syscall.EBUSY):
		return fmt.Errorf("%w: pool %s: %w; retry", backend.ErrBusy, p.Name, err)
	}
	return fmt.Errorf("pool %s: %w", p.Name, err)
}

// await takes a token. Who has it may wait for a cluster that does not answer: then the operations that wait for the token
// learn that too, by asking themselves. Only operations take tokens.
func (p *pool) await(ctx context.Context, token chan struct{}) (release func(), err error) {
	ask := time.NewTicker(p.in.Patience)
	defer ask.Stop()
	for {
		select {
		case <-token:
			return func() { token <- struct{}{} }, nil
		case <-p.life.Done():
			return nil, fmt.Errorf("%w: pool %s: it was closed", backend.ErrUnavailable, p.Name)
		case <-ask.C:
			err := p.manage(ctx, "asking whether the cluster answers", func(a *admin.FSAdmin) error {
				_, err := a.SubVolumeGroupPath(p.in.FileSystem, p.Group)
				return err
			})
			if err == nil {
				_, err = look(ctx, p, "asking whether the file system answers", func(g *group) (bool, error) { return g.exists(g.dir) })
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// promises returns when no other operation promises room; the caller releases it.
func (p *pool) promises(ctx context.Context) (release func(), err error) {
	return p.await(ctx, p.promising)
}

// client is the id under which the process that serves a group is known to the metadata servers: they let only one have it.
func (p *pool) client() string { return "holdfast/" + p.in.FileSystem + "/" + p.Group }

// mount makes a client of the file system; one with an id takes the place of the one that had it.
func mount(conn *rados.Conn, fs, id string) (_ *cephfs.MountInfo, err error) {
	m, err := cephfs.CreateFromRados(conn)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Release())
		}
	}()
	if err := m.SelectFilesystem(fs); err != nil {
		return nil, err
	}
	if err := m.Init(); err != nil {
		return nil, err
	}
	if id != "" {
		if err := reclaim(m, id); err != nil {
			return nil, err
		}
	}
	return m, m.Mount()
}

func unmount(m *cephfs.MountInfo) error { return errors.Join(m.Unmount(), m.Release()) }

// close leaves the file system when nothing uses it.
func (p *pool) close(ctx context.Context) error {
	_, err := ceph.Call(ctx, p.cluster, "leaving the file system", func(*rados.Conn) (any, error) {
		p.using.Lock()
		defer p.using.Unlock()
		if p.left {
			return nil, nil
		}
		p.left = true
		return nil, unmount(p.group.fs)
	})
	return err
}

// identify makes sure that the group is a pool, or begins a new one in a group that holds nothing.
func (p *pool) identify(ctx context.Context, token string) error {
	err := p.manage(ctx, "making the subvolume group "+p.Group, func(a *admin.FSAdmin) error {
		return a.CreateSubVolumeGroup(p.in.FileSystem, p.Group, &admin.SubVolumeGroupOptions{PoolLayout: p.in.DataPool, Mode: 0o755})
	})
	if err != nil {
		return err
	}
	head, err := look(ctx, p, "reading which pool it is", func(g *group) (poolMeta, error) { return g.identify(p.Group) })
	if err != nil {
		return err
	}
	p.id = head.ID
	return p.own(ctx, token)
}

// head reads what makes the group a pool; nil where it is none.
func (g *group) head() (*poolMeta, error) {
	data, err := g.attr(g.dir, poolAttr)
	if err != nil || data == nil {
		return nil, err
	}
	var head poolMeta
	if err := readVersioned(data, poolAttr, &head); err != nil {
		return nil, fmt.Errorf("%w: subvolume group %s: %w", backend.ErrUnavailable, path.Base(g.dir), err)
	}
	return &head, nil
}

func (g *group) identify(name string) (head poolMeta, err error) {
	there, err := g.head()
	if err != nil {
		return head, err
	}
	if there != nil {
		return *there, nil
	}
	names, err := g.names()
	if err != nil {
		return head, err
	}
	if len(names) > 0 {
		return head, fmt.Errorf("%w: the subvolume group %s holds %s and is not a pool; give a group of its own, which need not exist", backend.ErrInvalid, name, backend.Quote(names[0]))
	}
	head = poolMeta{Version: version, ID: rand.Text()}
	if err := g.set(g.dir, poolAttr, head); err != nil {
		return head, err
	}
	crashpoint.Here(crashpoint.PoolBegun)
	return head, nil
}
