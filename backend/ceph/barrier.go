//go:build ceph

package ceph

import (
	"context"
	"fmt"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// A change of the blocklist is one of the map of the cluster, which its OSDs learn of one after the other. Until then one may
// still do what a client requests that is shut out. But it does nothing for a client that knows of a later map before it has
// that itself, and so do all of its placement groups. So this process reads the latest map, and then asks each placement group
// of the pools with volumes for the name of an object.

// groupsAtOnce is how many placement groups are asked in one call, which has a limit of time.
const groupsAtOnce = 32

// awaitOSDs returns when no OSD does anything any more for who was on the blocklist when it was called.
func (b Blocklist) awaitOSDs(ctx context.Context) error {
	pools, err := b.pools(ctx)
	if err != nil {
		return err
	}
	if _, err := Call(ctx, b.cluster, "the latest map of OSDs", func(conn *rados.Conn) (any, error) { return nil, conn.WaitForLatestOSDMap() }); err != nil {
		return err
	}
	for _, pool := range pools {
		groups, err := b.groups(ctx, pool)
		if err != nil {
			return err
		}
		for first := 0; first < groups; first += groupsAtOnce {
			what := fmt.Sprintf("asking placement groups of pool %s whether they know the blocklist", pool)
			last := min(first+groupsAtOnce, groups)
			if _, err := Call(ctx, b.cluster, what, func(conn *rados.Conn) (any, error) { return nil, b.ask(conn, pool, first, last) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask has each of some placement groups look for an object. One without any goes on with the next.
func (b Blocklist) ask(conn *rados.Conn, pool string, first, last int) error {
	io, err := conn.OpenIOContext(pool)
	if err != nil {
		return err
	}
	defer io.Destroy()
	if b.cluster.config.FileSystem == "" {
		io.SetNamespace(b.cluster.config.Namespace)
	}
	objects, err := io.Iter()
	if err != nil {
		return err
	}
	defer objects.Close()
	for group := first; group < last; group++ {
		objects.Seek(rados.IterToken(group)) //nolint:gosec // it is less than the number of groups
		if !objects.Next() && objects.Err() != nil {
			return objects.Err()
		}
	}
	return nil
}

// pools are those that have what is in volumes.
func (b Blocklist) pools(ctx context.Context) (names []string, err error) {
	c := b.cluster.config
	if c.FileSystem == "" {
		for _, pool := range []string{c.Pool, c.DataPool} {
			if pool != "" {
				names = append(names, pool)
			}
		}
		return names, nil
	}
	var fs struct {
		MDSMap struct {
			Pools []int64 `json:"data_pools"`
		} `json:"mdsmap"`
	}
	if err := Ask(ctx, b.cluster, map[string]string{"prefix": "fs get", "fs_name": c.FileSystem}, &fs); err != nil {
		return nil, err
	}
	return Call(ctx, b.cluster, "names of pools", func(conn *rados.Conn) (names []string, err error) {
		for _, id := range fs.MDSMap.Pools {
			name, err := conn.GetPoolByID(id)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		return names, nil
	})
}

// groups is how many placement groups a pool has.
func (b Blocklist) groups(ctx context.Context, pool string) (int, error) {
	var is struct {
		Groups int `json:"pg_num"`
	}
	err := Ask(ctx, b.cluster, map[string]string{"prefix": "osd pool get", "pool": pool, "var": "pg_num"}, &is)
	if err == nil && is.Groups <= 0 {
		err = fmt.Errorf("%w: pool %s has %d placement groups", backend.ErrUnavailable, pool, is.Groups)
	}
	return is.Groups, err
}
