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

// checkFileSystem looks at the file system of the engine cephfs, and makes the subvolume group where there is none.
func (p *pool) checkFileSystem(ctx context.Context, cluster *ceph.Cluster) error {
	c := p.Config.Ceph
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
	group := cmp.Or(c.Namespace, directories.DefaultGroup)
	_, err := ceph.Call(ctx, cluster.Manager(), "making the subvolume group "+group, func(conn *rados.Conn) (any, error) {
		return nil, admin.NewFromConn(conn).CreateSubVolumeGroup(c.FileSystem, group, &admin.SubVolumeGroupOptions{PoolLayout: c.DataPool, Mode: 0o755})
	})
	if err != nil {
		return p.refused(err, "mgr", "make the subvolume group "+group+": ceph fs subvolumegroup create")
	}
	return p.checkDirectory(ctx, cluster, "/volumes/"+group)
}

// limit is an attribute of a directory that only a user with the cap p may write.
const limit = "ceph.quota.max_files"

// checkDirectory mounts the file system, and asks whether a limit of files may be set in it, by setting the one that is.
func (p *pool) checkDirectory(ctx context.Context, cluster *ceph.Cluster, dir string) error {
	_, err := ceph.Call(ctx, cluster, "mounting file system "+p.Config.Ceph.FileSystem, func(conn *rados.Conn) (_ any, err error) {
		m, err := cephfs.CreateFromRados(conn)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.Release()) }()
		if err := m.SelectFilesystem(p.Config.Ceph.FileSystem); err != nil {
			return nil, err
		}
		if err := m.Mount(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.Unmount()) }()
		is, err := m.GetXattr(dir, limit)
		if ceph.ErrnoOf(err) == unix.ENODATA {
			is, err = []byte("0"), nil
		}
		if err != nil {
			return nil, err
		}
		return nil, m.SetXattr(dir, limit, is, cephfs.XattrDefault)
	})
	return p.refused(err, "mds", "mount the file system "+p.Config.Ceph.FileSystem+" and limit the files of "+dir)
}
