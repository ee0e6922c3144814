package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/parameters"
)

// checkDefault allows two fields to say the same.
func checkDefault(p *plan) error {
	isDefault := func(c v1beta1.StorageClassSpec) bool { return c.Default }
	if d := p.spec.DefaultClass; d != nil && len(p.spec.StorageClasses) > 0 && *d != slices.ContainsFunc(p.spec.StorageClasses, isDefault) {
		return fmt.Errorf("spec.defaultClass: %t is not what default of spec.storageClasses says: leave it out, or set default of a class", *d)
	}
	return nil
}

func checkClasses(p *plan) error {
	for i, class := range p.classSpecs() {
		at := fmt.Sprintf("spec.storageClasses[%d]", i)
		if err := p.checkPoolsOf(at, class); err != nil {
			return err
		}
		if pool := p.poolOf(class); hasDirectories(pool) && class.FSType != "" {
			return fmt.Errorf("%s.fsType: class %s has %s, and the volumes of pool %s, with engine %s, are directories of its file system: leave it out", at, class.Name, class.FSType, pool.Name, pool.Engine)
		}
		if err := p.checkParameters(at, class); err != nil {
			return err
		}
	}
	return nil
}

// checkPoolsOf refuses pools that are not there, and several that cannot have the same volumes.
func (p *plan) checkPoolsOf(at string, class v1beta1.StorageClassSpec) error {
	pools := p.poolNames()
	if class.Pool != "" && !slices.Contains(pools, class.Pool) {
		return fmt.Errorf("%s.pool: class %s names the pool %.80q: spec.pools has only %s", at, class.Name, class.Pool, strings.Join(pools, ", "))
	}
	for i, name := range class.Pools {
		one := v1beta1.Find(p.pools, func(pool v1beta1.PoolSpec) bool { return pool.Name == name })
		switch first := p.poolOf(class); {
		case one == nil || !slices.Contains(pools, name):
			return fmt.Errorf("%s.pools[%d]: class %s names the pool %.80q: spec.pools has only %s", at, i, class.Name, name, strings.Join(pools, ", "))
		case one.Ceph != nil && len(class.Pools) > 1:
			return fmt.Errorf("%s.pools[%d]: class %s has several pools, and pool %s is in a Ceph cluster: a class of it has no other", at, i, class.Name, name)
		case first != nil && hasDirectories(first) != hasDirectories(one):
			return fmt.Errorf("%s.pools[%d]: class %s has the pools %s and %s, of which one makes directories and one images: give each a class of its own", at, i, class.Name, first.Name, name)
		}
	}
	return nil
}

// checkParameters refuses parameters that have a field, so that each has one place, and those that the driver refuses.
func (p *plan) checkParameters(at string, class v1beta1.StorageClassSpec) error {
	elsewhere := map[string]string{
		parameters.Pool: at + ".pool", parameters.OnNodeLoss: at + ".onNodeLoss", parameters.FSType: at + ".fsType",
	}
	for _, c := range p.credentials() {
		for _, key := range c.parameters() {
			elsewhere[key] = "spec.csi." + c.field
		}
	}
	for _, key := range sortedKeys(class.Parameters) {
		if field := elsewhere[key]; field != "" {
			return fmt.Errorf("%s.parameters: class %s has %s here: %s says it", at, class.Name, key, field)
		}
	}
	if _, err := parameters.CSI.Read(parametersOf(class)); err != nil {
		return fmt.Errorf("%s.parameters: class %s: %w", at, class.Name, err)
	}
	return nil
}
