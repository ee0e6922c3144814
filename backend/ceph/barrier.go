//go:build ceph

package ceph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// A change of the blocklist is one of the map of the cluster, which its OSDs learn of one after the other. Until then one may
// still do what a client requests that is shut out. But it does nothing for a client that knows of a later map before it has
// that itself, and so do all of its placement groups. So this process reads the latest map, and then asks each placement group
// of the pools with volumes for an object. It does not exist, and costs the same in a pool of any size.

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
	namespace := b.cluster.config.Namespace
	if b.cluster.config.FileSystem != "" {
		namespace = ""
	}
	for _, pool := range pools {
		groups, err := b.groups(ctx, pool)
		if err != nil {
			return err
		}
		names := nameInEach(namespace, groups)
		if err := b.checkPlacement(ctx, pool, namespace, names[0]); err != nil {
			return err
		}
		for some := range slices.Chunk(names, groupsAtOnce) {
			what := fmt.Sprintf("asking placement groups of pool %s whether they know the blocklist", pool)
			if _, err := Call(ctx, b.cluster, what, func(conn *rados.Conn) (any, error) { return nil, ask(conn, pool, namespace, some) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask has each of some objects looked for.
func ask(conn *rados.Conn, pool, namespace string, names []string) error {
	io, err := conn.OpenIOContext(pool)
	if err != nil {
		return err
	}
	defer io.Destroy()
	io.SetNamespace(namespace)
	for _, name := range names {
		if _, err := io.Stat(name); err != nil && !errors.Is(err, rados.ErrNotFound) {
			return err
		}
	}
	return nil
}

// checkPlacement fails where the cluster places an object by another number than this process does.
func (b Blocklist) checkPlacement(ctx context.Context, pool, namespace, name string) error {
	command := map[string]string{"prefix": "osd map", "pool": pool, "object": name}
	if namespace != "" {
		command["nspace"] = namespace
	}
	var is struct {
		Number string `json:"raw_pgid"` // POOL.HASH
	}
	err := Ask(ctx, b.cluster, command, &is)
	if _, hash, _ := strings.Cut(is.Number, "."); err == nil && hash != strconv.FormatUint(uint64(objectHash(namespace, name)), 16) {
		err = fmt.Errorf("%w: pool %s places object %s by %s, which is not its hash of rjenkins; only pools with that object_hash can be fenced", backend.ErrUnavailable, pool, name, backend.Quote(is.Number))
	}
	return err
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
