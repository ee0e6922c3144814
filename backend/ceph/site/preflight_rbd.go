//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// checkImages looks at the pools of the engine rbd, and makes the namespace where there is none.
func (p *pool) checkImages(ctx context.Context, cluster *ceph.Cluster) error {
	c := p.Ceph
	if err := p.monitor(ctx, cluster, map[string]string{"prefix": "df"}, &struct{}{}); err != nil {
		return err
	}
	if err := checkShutOut(ctx, cluster, p.maker(), "add", "rm"); err != nil {
		return err
	}
	for _, name := range []string{c.Pool, c.DataPool} {
		if name == "" {
			continue
		}
		if err := p.checkPool(ctx, cluster, name); err != nil {
			return err
		}
	}
	if c.Namespace == "" {
		return nil
	}
	_, err := ceph.Call(ctx, cluster, "making namespace "+c.Namespace, func(conn *rados.Conn) (any, error) {
		ioctx, err := conn.OpenIOContext(c.Pool)
		if err != nil {
			return nil, err
		}
		defer ioctx.Destroy()
		if there, err := rbd.NamespaceExists(ioctx, c.Namespace); there || err != nil {
			return nil, err
		}
		return nil, rbd.NamespaceCreate(ioctx, c.Namespace)
	})
	if isRefused(err) {
		return nil // it may do all in the namespace, and nothing beside it: then it is an administrator who has made it
	}
	return err
}

// nowhere is an object that no pool has.
const nowhere = "holdfast.nowhere"

// checkPool asks whether a pool is there, and whether images in it may be written: an object that is not there is not
// found only by those who may.
func (p *pool) checkPool(ctx context.Context, cluster *ceph.Cluster, name string) error {
	_, err := ceph.Call(ctx, cluster, "looking for pool "+name, func(conn *rados.Conn) (any, error) {
		_, err := conn.GetPoolByName(name)
		return nil, err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: the Ceph cluster has no pool %s: `ceph osd pool create %s && rbd pool init %s` makes it; `ceph osd pool ls` lists those that there are", backend.ErrUnavailable, backend.Quote(name), name, name)
	case err != nil:
		return err
	}
	return p.tryPool(ctx, cluster, p.maker(), name, listImages, lockObject)
}

// attempt is what an account needs to be able to do in a pool. It changes nothing.
type attempt struct {
	what string
	try  func(*rados.IOContext) error
}

var (
	listImages   = attempt{"list images in pool ", func(ioctx *rados.IOContext) error { _, err := rbd.GetImageNames(ioctx); return err }}
	lockObject   = attempt{"lock an object in pool ", func(ioctx *rados.IOContext) error { _, err := ioctx.Unlock(nowhere, nowhere, nowhere); return err }}
	lookForData  = attempt{"look for an object in data pool ", func(ioctx *rados.IOContext) error { _, err := ioctx.Stat(nowhere); return err }}
	removeObject = attempt{"write in data pool ", func(ioctx *rados.IOContext) error { return ioctx.Delete(nowhere) }}
)

// tryPool makes attempts in a pool, in the namespace of the engine rbd. That the object is not there is known only to an account
// that may do what it attempts.
func (p *pool) tryPool(ctx context.Context, cluster *ceph.Cluster, as account, name string, all ...attempt) error {
	for _, a := range all {
		what := a.what + name
		_, err := ceph.Call(ctx, cluster, "trying to "+what, func(conn *rados.Conn) (any, error) {
			ioctx, err := conn.OpenIOContext(name)
			if err != nil {
				return nil, err
			}
			defer ioctx.Destroy()
			if p.Engine == RBD {
				ioctx.SetNamespace(p.Ceph.Namespace)
			}
			return nil, a.try(ioctx)
		})
		if err := as.refused(err, "osd", what); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// checkNodeImages asks whether an account may use images, as nodes do: lock one, cut off who has it and does not answer, write.
func (p *pool) checkNodeImages(ctx context.Context, cluster *ceph.Cluster, as account) error {
	if err := checkShutOut(ctx, cluster, as, "add"); err != nil {
		return err
	}
	if err := p.tryPool(ctx, cluster, as, p.Ceph.Pool, listImages, lockObject); err != nil || p.Ceph.DataPool == "" {
		return err
	}
	return p.tryPool(ctx, cluster, as, p.Ceph.DataPool, lookForData, removeObject)
}
