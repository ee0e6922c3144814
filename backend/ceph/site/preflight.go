//go:build ceph

package site

import (
	"context"

	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// check says what keeps the pool from being used by a connection that was made just now.
func (p *pool) check(ctx context.Context, cluster *ceph.Cluster) error {
	return ask(ctx, cluster)
}
