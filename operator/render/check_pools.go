package render

import (
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// systemDirs are those whose content the program needs, or that are the pod's own.
var systemDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"}

func checkPools(p *plan) error {
	dirs := map[string]string{}
	i := -1
	for _, pool := range p.pools {
		if _, number := v1beta1.InSpec(pool.Name); number == 1 {
			i++
		}
		at := fmt.Sprintf("spec.pools[%d]", i)
		if err := p.checkPlace(at, pool); err != nil {
			return err
		}
		if err := checkApart(at, pool, dirs); err != nil {
			return err
		}
		dirs[Place(&pool)] = pool.Name
		if err := checkPolicy(at, pool); err != nil {
			return err
		}
		if err := checkTerms(at, pool.NodeSelectorTerms); err != nil {
			return err
		}
	}
	return nil
}

// checkApart refuses a place that another pool has.
func checkApart(at string, pool v1beta1.PoolSpec, dirs map[string]string) error {
	dir := Place(&pool)
	for _, other := range sortedKeys(dirs) {
		switch {
		case pool.Ceph != nil && dir == other:
			return fmt.Errorf("%s.ceph: pools %s and %s have the same part of the Ceph cluster %s: give each another ceph.pool, ceph.filesystem or ceph.namespace", at, pool.Name, dirs[other], pool.Ceph.FSID)
		case pool.Ceph == nil && (within(dir, other) || within(other, dir)):
			return fmt.Errorf("%s.path: pool %s at %s and pool %s at %s overlap: each needs a directory of its own", at, pool.Name, dir, dirs[other], other)
		}
	}
	return nil
}

// checkPlace refuses a directory that a pool must not have.
func (p *plan) checkPlace(at string, pool v1beta1.PoolSpec) error {
	if pool.Ceph != nil {
		return p.checkCeph(at, pool)
	}
	if pool.Devices != nil {
		return nil
	}
	for _, taken := range append([]string{p.kubeletDir}, systemDirs...) {
		if within(pool.Path, taken) {
			return fmt.Errorf("%s.path: %s is not allowed for pool %s: %s belongs to the node; a directory such as %s is", at, pool.Path, pool.Name, taken, poolDir(pool.Name))
		}
	}
	for _, part := range []string{p.kubeletDir, hostDir} {
		if within(part, pool.Path) {
			return fmt.Errorf("%s.path: %s is not allowed for pool %s: %s is in it; a directory such as %s is", at, pool.Path, pool.Name, part, poolDir(pool.Name))
		}
	}
	return nil
}

// checkPolicy refuses limits that a pool could not enforce.
func checkPolicy(at string, pool v1beta1.PoolSpec) error {
	if _, err := pool.OvercommitTimes(); err != nil {
		return fmt.Errorf("%s.overcommit: %w", at, err)
	}
	if _, err := pool.TrashRetention.Or(0); err != nil {
		return fmt.Errorf("%s.trashRetention: %w", at, err)
	}
	if _, err := pool.ReservedRoom(); err != nil {
		return fmt.Errorf("%s.reserved: %w", at, err)
	}
	return nil
}

// poolNames are those that a class may name.
func (p *plan) poolNames() []string {
	var names []string
	for _, pool := range p.pools {
		inSpec, _ := v1beta1.InSpec(pool.Name)
		names = append(names, inSpec)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
