//go:build ceph

package site

import (
	"context"

	"github.com/holdfast-storage/holdfast/backend"
)

var _ backend.Fencer = (*pool)(nil)

func (p *pool) Fence(ctx context.Context, addresses []string) error {
	return p.do(ctx, func(s *serving) error { return s.Fence(ctx, addresses) })
}

func (p *pool) Unfence(ctx context.Context, addresses []string) error {
	return p.do(ctx, func(s *serving) error { return s.Unfence(ctx, addresses) })
}

func (p *pool) Fenced(ctx context.Context) ([]string, error) {
	return use(ctx, p, func(s *serving) ([]string, error) { return s.Fenced(ctx) })
}
