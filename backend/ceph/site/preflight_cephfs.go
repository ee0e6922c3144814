//go:build ceph

package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/cephfs/admin"
	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	directories "github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
)

// checkFileSystem looks at the file system of the engine cephfs, which makes the subvolume group itself.
func (p *pool) checkFileSystem(ctx context.Context, cluster *ceph.Cluster) error {
	c := p.Ceph
	var all []struct {
		Name  string
		Pools []string `json:"data_pools"`
	}
	if err := p.monitor(ctx, cluster, map[string]string{"prefix": "fs ls"}, &all); err != nil {
		return err
	}
	names, at := []string{}, -1
	for i, fs := range all {
		if names = append(names, fs.Name); fs.Name == c.FileSystem {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("%w: the Ceph cluster has no file system %s that client.%s may see; it sees: %s (`ceph fs ls` lists all)", backend.ErrUnavailable, backend.Quote(c.FileSystem), c.User, cmp.Or(strings.Join(names, ", "), "none"))
	}
	if c.DataPool != "" && !slices.Contains(all[at].Pools, c.DataPool) {
		return fmt.Errorf("%w: the file system %s has no data pool %s, but: %s; `ceph fs add_data_pool %s %s` adds it", backend.ErrUnavailable, c.FileSystem, backend.Quote(c.DataPool), strings.Join(all[at].Pools, ", "), c.FileSystem, c.DataPool)
	}
	if err := p.checkManager(ctx, cluster); err != nil {
		return err
	}
	if err := p.checkShutOut(ctx, cluster); err != nil {
		return err
	}
	_, err := mounted(ctx, p, cluster, func(*cephfs.MountInfo) (any, error) { return nil, nil })
	return p.refused(err, "mds", "mount the file system "+c.FileSystem)
}

// checkManager asks whether the user may make subvolumes: of a file system that is not there, only those learn that who
// may. One that is there may wait for a client that was killed, until the engine takes its place.
func (p *pool) checkManager(ctx context.Context, cluster *ceph.Cluster) error {
	_, err := ceph.Call(ctx, cluster.Manager(), "asking the manager", func(conn *rados.Conn) (any, error) {
		return nil, admin.NewFromConn(conn).CreateSubVolumeGroup(nowhere, nowhere, nil)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return p.refused(err, "mgr", "make subvolumes: ceph fs subvolumegroup create")
}

// mounted runs f with the file system.
func mounted[T any](ctx context.Context, p *pool, cluster *ceph.Cluster, f func(*cephfs.MountInfo) (T, error)) (T, error) {
	return ceph.Call(ctx, cluster, "mounting file system "+p.Ceph.FileSystem, func(conn *rados.Conn) (value T, err error) {
		m, err := cephfs.CreateFromRados(conn)
		if err != nil {
			return value, err
		}
		defer func() { err = errors.Join(err, m.Release()) }()
		if err := m.SelectFilesystem(p.Ceph.FileSystem); err != nil {
			return value, err
		}
		if err := m.Mount(); err != nil {
			return value, err
		}
		defer func() { err = errors.Join(err, m.Unmount()) }()
		return f(m)
	})
}

// limit is an attribute of a directory that only a user with the cap p may write.
const limit = "ceph.quota.max_files"

// checkLimits asks whether the number of files may be limited, by setting the limit of the pool's directory that it has.
// No client that was killed has the directory any more: the engine has taken its place.
func (p *pool) checkLimits(ctx context.Context, cluster *ceph.Cluster) error {
	dir := "/volumes/" + cmp.Or(p.Ceph.Namespace, directories.DefaultGroup)
	_, err := mounted(ctx, p, cluster, func(m *cephfs.MountInfo) (any, error) {
		is, err := m.GetXattr(dir, limit)
		if ceph.ErrnoOf(err) == unix.ENODATA {
			is, err = []byte("0"), nil
		}
		if err != nil {
			return nil, err
		}
		return nil, m.SetXattr(dir, limit, is, cephfs.XattrDefault)
	})
	return p.refused(err, "mds", "limit the files of "+dir)
}
