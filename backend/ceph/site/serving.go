//go:build ceph

package site

import (
	"context"
	"errors"
	"sync"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
	"github.com/holdfast-storage/holdfast/backend/ceph/rbd"
)

// engine is what both engines do.
type engine interface {
	backend.Backend
	backend.Expander
	backend.Completer
	backend.Snapshotter
	backend.Cloner
	backend.Trasher
	backend.Fencer
	Close(ctx context.Context) error
}

// serving is the pool as it is served over one connection.
type serving struct {
	engine
	cluster *ceph.Cluster
	key     ceph.Key
	calls   sync.WaitGroup
	proven  bool // what is tried once has succeeded
}

// serve opens the engine.
func (p *pool) serve(ctx context.Context, cluster *ceph.Cluster, key ceph.Key) (*serving, error) {
	s := &serving{cluster: cluster, key: key}
	var err error
	if p.Engine == RBD {
		s.engine, err = rbd.Open(ctx, cluster, p.forRBD(), p.log)
	} else {
		s.engine, err = cephfs.Open(ctx, cluster, p.forCephFS(), p.log)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (p *pool) forRBD() rbd.Config {
	return rbd.Config{Name: p.Pool, Overcommit: p.Overcommit, Reserved: p.Reserved, TrashRetention: p.TrashRetention}
}

func (p *pool) forCephFS() cephfs.Config {
	return cephfs.Config{Name: p.Pool, Group: p.Ceph.Namespace, Overcommit: p.Overcommit, Reserved: p.Reserved, TrashRetention: p.TrashRetention, Yields: p.yields}
}

// answers says whether the connection reaches the monitors.
func (s *serving) answers(ctx context.Context) error { return ask(ctx, s.cluster) }

func ask(ctx context.Context, cluster *ceph.Cluster) error {
	_, err := ceph.Call(ctx, cluster, "asking the monitors", func(conn *rados.Conn) (any, error) {
		_, _, err := conn.MonCommand([]byte(`{"prefix":"version"}`)) // any user may
		return nil, err
	})
	return err
}

// noVolume is an ID that no volume has.
const noVolume = "holdfast-looks-whether-the-pool-answers"

// works says whether volumes can be found and made: the engine has the pool, and reads it; the monitors answer.
func (p *pool) works(ctx context.Context, s *serving) error {
	if _, err := s.Get(ctx, noVolume); !errors.Is(err, backend.ErrNotFound) {
		of := map[string]string{RBD: "osd", CephFS: "mds"}[p.Engine]
		return p.refused(err, of, "use the pool")
	}
	if err := s.answers(ctx); err != nil || s.proven || p.Engine == RBD {
		return err
	}
	err := p.checkLimits(ctx, s.cluster)
	s.proven = err == nil
	return err
}

// close waits until nothing runs, and leaves the cluster. No call begins any more.
func (s *serving) close(ctx context.Context) error {
	s.calls.Wait() // each has a limit of time
	if err := s.cluster.Idle(ctx); err != nil {
		return err
	}
	return errors.Join(s.Close(ctx), s.cluster.Close(ctx))
}
