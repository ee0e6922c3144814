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
	if err := p.checkShutOut(ctx, cluster); err != nil {
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
	for _, call := range []struct {
		what string
		try  func(*rados.IOContext) error
	}{
		{"list images in pool " + name, func(ioctx *rados.IOContext) error { _, err := rbd.GetImageNames(ioctx); return err }},
		{"lock an object in pool " + name, func(ioctx *rados.IOContext) error { _, err := ioctx.Unlock(nowhere, nowhere, nowhere); return err }},
	} {
		_, err := ceph.Call(ctx, cluster, "trying to "+call.what, func(conn *rados.Conn) (any, error) {
			ioctx, err := conn.OpenIOContext(name)
			if err != nil {
				return nil, err
			}
			defer ioctx.Destroy()
			ioctx.SetNamespace(p.Ceph.Namespace)
			return nil, call.try(ioctx)
		})
		if err := p.refused(err, "osd", call.what); err != nil {
			return err
		}
	}
	return nil
}
