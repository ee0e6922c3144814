//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-storage/holdfast/backend/ceph"
)

const (
	// nodesEvery is how often the user of nodes is looked at while it has all that nodes need.
	nodesEvery = 10 * time.Minute
	// nodesAfter is when it is looked at again after Ceph did not answer.
	nodesAfter = time.Minute
)

// looked is when the user of nodes was looked at.
type looked struct {
	key   ceph.Key
	again time.Time
}

// lookAtNodes says why nodes cannot use the volumes of a pool that is served itself. What is no fault of their user, such as a
// cluster that does not answer, leaves what was known.
func (p *pool) lookAtNodes(ctx context.Context) error {
	_, own := p.Ceph.ForNodes().HasOwnUsers()
	if p.NodeKeyFile == "" && !own {
		return nil
	}
	was := p.NodeWarning()
	var key ceph.Key
	var err error
	if !own {
		if key, err = readKey(p.NodeKeyFile, p.mounter()); err != nil {
			p.nodesLooked = looked{}
			return fmt.Errorf("pool %s: %w", p.Pool, err)
		}
	}
	if key == p.nodesLooked.key && time.Now().Before(p.nodesLooked.again) {
		return was
	}
	limited, cancel := context.WithTimeout(ctx, p.Ceph.Patience)
	defer cancel()
	if own {
		err = p.lookAtNodeUsers(limited)
	} else {
		err = p.checkNodeUser(limited, p.mounter(), key)
	}
	p.nodesLooked = looked{key, time.Now().Add(nodesEvery)}
	if _, refused := errors.AsType[refusal](err); refused {
		p.nodesLooked = looked{}
		return fmt.Errorf("pool %s: %w", p.Pool, err)
	}
	if err != nil {
		p.nodesLooked.again = time.Now().Add(nodesAfter)
		p.log.Warn("it is not known whether nodes can use the volumes of the pool", "user", p.mounter().user, "error", err)
		return was
	}
	return nil
}

// checkNodeUser connects as nodes do, and asks for no more than the caps of docs/ceph.md allow.
func (p *pool) checkNodeUser(ctx context.Context, as account, key ceph.Key) error {
	c := p.Ceph
	c.User, c.Key = as.user, key
	cluster, err := ceph.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer p.abandon("the connection as the user of nodes", cluster.Close)
	if err := connect(ctx, cluster); isRefused(err) {
		return as.refusedKey(p.NodeKeyFile)
	} else if err != nil {
		return err
	}
	if p.Engine == RBD {
		return p.checkNodeImages(ctx, cluster, as)
	}
	return p.checkNodeDirectories(ctx, cluster, as)
}
