//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
	"github.com/holdfast-storage/holdfast/backend/ceph/rbd"
)

// MetadataVersion is the version of metadata in Ceph clusters that this program writes, and the newest that it reads.
const MetadataVersion = max(rbd.MetadataVersion, cephfs.MetadataVersion)

// view is the View of both engines.
type view struct {
	reader
	pool    *pool
	cluster *ceph.Cluster
	key     ceph.Key
}

// Peek reads a pool that another process may be serving. It changes nothing but by Undelete.
func Peek(ctx context.Context, c Config, log *slog.Logger) (_ View, err error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	v := &view{pool: &pool{Config: c, log: log.With("pool", c.Pool)}}
	if v.key, err = readKey(c.KeyFile, v.pool.maker()); err != nil {
		return nil, err
	}
	in := c.Ceph
	in.Key = v.key
	if v.cluster, err = ceph.New(in, slog.New(slog.DiscardHandler)); err != nil { // a command says itself what it does
		return nil, err
	}
	if err = v.pool.checkCluster(ctx, v.cluster); err == nil {
		v.reader, err = v.pool.read(v.cluster)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pool %s: %w", c.Pool, err), v.cluster.Close(ctx))
	}
	return v, nil
}

func (p *pool) read(cluster *ceph.Cluster) (reader, error) {
	if p.Engine == RBD {
		return rbd.Peek(cluster, p.forRBD(), p.log)
	}
	return cephfs.Peek(cluster, p.forCephFS(), p.log)
}

// forever keeps all that is in the trash: who configured how long has done so elsewhere.
const forever = 100 * 365 * 24 * time.Hour

// Undelete serves the pool while it takes a volume out of the trash. That finishes what was left in the pool, too.
func (v *view) Undelete(ctx context.Context, id backend.ID) (_ *backend.Volume, err error) {
	serving := &pool{Config: v.pool.Config, log: v.pool.log, yields: true}
	serving.TrashRetention = forever
	if err := serving.check(ctx, v.cluster); err != nil {
		return nil, fmt.Errorf("pool %s: %w", v.pool.Pool, err)
	}
	s, err := serving.serve(ctx, v.cluster, v.key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	return s.Undelete(ctx, id)
}

func (v *view) Close(ctx context.Context) error {
	return errors.Join(v.reader.Close(ctx), v.cluster.Close(ctx))
}
