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
)

// dataPools are those of the file system; the first one has what names no other.
func (p *pool) dataPools(ctx context.Context, cluster *ceph.Cluster) ([]string, error) {
	c := p.Ceph
	var all []struct {
		Name  string
		Pools []string `json:"data_pools"`
	}
	if err := p.monitor(ctx, cluster, map[string]string{"prefix": "fs ls"}, &all); err != nil {
		return nil, err
	}
	names := []string{}
	for _, fs := range all {
		if fs.Name == c.FileSystem {
			return fs.Pools, nil
		}
		names = append(names, fs.Name)
	}
	return nil, fmt.Errorf("%w: the Ceph cluster has no file system %s that client.%s may see; it sees: %s (`ceph fs ls` lists all)", backend.ErrUnavailable, backend.Quote(c.FileSystem), c.User, cmp.Or(strings.Join(names, ", "), "none"))
}

// checkFileSystem looks at the file system of the engine cephfs, which makes the subvolume group itself.
func (p *pool) checkFileSystem(ctx context.Context, cluster *ceph.Cluster) error {
	c := p.Ceph
	pools, err := p.dataPools(ctx, cluster)
	if err != nil {
		return err
	}
	if c.DataPool != "" && !slices.Contains(pools, c.DataPool) {
		return fmt.Errorf("%w: the file system %s has no data pool %s, but: %s; `ceph fs add_data_pool %s %s` adds it", backend.ErrUnavailable, c.FileSystem, backend.Quote(c.DataPool), strings.Join(pools, ", "), c.FileSystem, c.DataPool)
	}
	if err := p.checkManager(ctx, cluster); err != nil {
		return err
	}
	if err := checkShutOut(ctx, cluster, p.maker(), "add", "rm"); err != nil {
		return err
	}
	for _, name := range pools { // as a fence does in each of their placement groups, and nothing else before a node is lost
		if err := p.tryPool(ctx, cluster, p.maker(), name, lookForData); err != nil {
			return err
		}
	}
	_, err = mounted(ctx, p, cluster, "/", func(*cephfs.MountInfo) (any, error) { return nil, nil })
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

// mounted runs f with the file system, or with a directory of it.
func mounted[T any](ctx context.Context, p *pool, cluster *ceph.Cluster, root string, f func(*cephfs.MountInfo) (T, error)) (T, error) {
	return ceph.Call(ctx, cluster, "mounting file system "+p.Ceph.FileSystem, func(conn *rados.Conn) (value T, err error) {
		m, err := cephfs.CreateFromRados(conn)
		if err != nil {
			return value, err
		}
		defer func() { err = errors.Join(err, m.Release()) }()
		if err := m.SelectFilesystem(p.Ceph.FileSystem); err != nil {
			return value, err
		}
		if err := m.MountWithRoot(root); err != nil {
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
	dir := p.group()
	_, err := mounted(ctx, p, cluster, "/", func(m *cephfs.MountInfo) (any, error) {
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

// mark is an attribute that no directory has.
const mark = "user." + nowhere

// checkNodeDirectories asks whether an account may use directories of the group, as nodes do: mount one, change what is in it,
// write files. Only an account that may change the group learns that an attribute to be replaced is not there.
func (p *pool) checkNodeDirectories(ctx context.Context, cluster *ceph.Cluster, as account) error {
	_, err := mounted(ctx, p, cluster, p.group(), func(m *cephfs.MountInfo) (any, error) {
		err := m.SetXattr("/", mark, []byte("1"), cephfs.XattrReplace)
		if ceph.ErrnoOf(err) == unix.ENODATA {
			err = nil
		}
		return nil, err
	})
	if err := as.refused(err, "mds", "mount and change "+p.group()+" of file system "+p.Ceph.FileSystem); err != nil {
		return err
	}
	data := p.Ceph.DataPool
	if data == "" {
		s, err := p.enter(ctx)
		if err != nil {
			return err
		}
		defer s.calls.Done()
		pools, err := p.dataPools(ctx, s.cluster)
		if err != nil || len(pools) == 0 {
			return err
		}
		data = pools[0]
	}
	return p.tryPool(ctx, cluster, as, data, lookForData, removeObject)
}
