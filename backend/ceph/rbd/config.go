//go:build ceph

package rbd

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// Config says how a pool is served.
type Config struct {
	Name string // by which requests name the pool; empty: as Ceph does
	// Overcommit is how often the room of the pool may be promised; 0: once.
	Overcommit float64
	// Reserved is kept free: bytes such as 10Gi, or a share such as 5%; empty: backend.DefaultReserve.
	Reserved string
	// TrashRetention is how long deleted volumes are kept; 0: a day.
	TrashRetention time.Duration
}

func (c *Config) complete(of ceph.Config) error {
	if of.Pool == "" {
		return fmt.Errorf("%w: no pool of images is named", backend.ErrInvalid)
	}
	c.Name = cmp.Or(c.Name, of.Pool)
	c.Overcommit = cmp.Or(c.Overcommit, 1)
	c.TrashRetention = cmp.Or(c.TrashRetention, 24*time.Hour)
	if c.Overcommit < 0.1 || c.Overcommit > 100 {
		return fmt.Errorf("%w overcommit %g of pool %s: it must be 0.1 to 100", backend.ErrInvalid, c.Overcommit, c.Name)
	}
	if _, err := backend.ParseReserve(c.Reserved); err != nil {
		return fmt.Errorf("%w pool %s: %w", backend.ErrInvalid, c.Name, err)
	}
	return nil
}
