package render

import (
	"fmt"
	"path"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// hostDir is the directory of Holdfast on each node.
const hostDir = "/var/lib/holdfast"

// Pools returns the pools of all nodes, with their directories, and those in Ceph clusters. A pool of devices has no
// directory here, and is several where it may have several devices.
func Pools(c *v1beta1.StorageCluster) []v1beta1.PoolSpec {
	pools := slices.Clone(c.Spec.Pools)
	if len(pools) == 0 {
		// It shares its file system with the system, which needs more free space than a dedicated disk.
		pools = []v1beta1.PoolSpec{{Name: "default", Reserved: "10%"}}
	}
	for i := range pools {
		if pools[i].Path == "" && pools[i].Devices == nil && pools[i].Ceph == nil {
			pools[i].Path = poolDir(pools[i].Name)
		}
	}
	return v1beta1.EachDevice(pools)
}

// FieldOf returns the field of the spec that a pool comes from.
func FieldOf(c *v1beta1.StorageCluster, pool string) *field.Path {
	inSpec, _ := v1beta1.InSpec(pool)
	at := slices.IndexFunc(c.Spec.Pools, func(p v1beta1.PoolSpec) bool { return p.Name == inSpec })
	return field.NewPath("spec", "pools").Index(max(at, 0))
}

func poolDir(pool string) string { return path.Join(hostDir, "pools", pool) }

// Stores says whether the spec selects a node, in any state: a node that is cordoned or not ready should come back.
func Stores(c *v1beta1.StorageCluster, node *core.Node) (bool, error) {
	if node.Labels[core.LabelOSStable] != "linux" {
		return false, nil
	}
	return matches(c.Spec.NodeSelectorTerms, node, field.NewPath("spec"))
}

// NodePools returns the pools of a node; none if the spec does not select it.
func NodePools(c *v1beta1.StorageCluster, node *core.Node) ([]v1beta1.PoolSpec, error) {
	if stores, err := Stores(c, node); !stores {
		return nil, err
	}
	var chosen []v1beta1.PoolSpec
	for _, pool := range Pools(c) {
		if pool.Ceph != nil {
			continue
		}
		matched, err := matches(pool.NodeSelectorTerms, node, FieldOf(c, pool.Name))
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", pool.Name, err)
		}
		if matched {
			chosen = append(chosen, pool)
		}
	}
	return chosen, nil
}

// matches says whether one of the terms matches a node, as the scheduler reads them. No terms match every node.
func matches(terms []core.NodeSelectorTerm, node *core.Node, parent *field.Path) (bool, error) {
	if len(terms) == 0 {
		return true, nil
	}
	selector, err := nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: terms}, field.WithPath(parent))
	if err != nil {
		return false, err
	}
	return selector.Match(node), nil
}
