package rollout

import (
	"cmp"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// World is the input of a step.
type World struct {
	DaemonSet *apps.DaemonSet
	Pods      []*core.Pod            // of the DaemonSet; others are ignored
	Nodes     []*v1beta1.StorageNode // that are to store, by name
	// Unregistered are nodes where the driver is not registered with the kubelet; nil: not checked.
	Unregistered map[string]bool
	// Account is when the pods' ServiceAccount was created: the API server refuses the tokens of older pods. Zero: not
	// checked.
	Account time.Time
}

// Sources are the cached objects that a World is made of.
type Sources struct {
	DaemonSet    *apps.DaemonSet // nil if there is none
	Account      time.Time
	Pods         []*core.Pod
	Stores       []*core.Node // those that are to store
	StorageNodes []*v1beta1.StorageNode
	Registered   map[string]bool // nodes whose kubelet knows the driver
}

// World leaves out the StorageNodes without a node pod: those of NFS servers, and of nodes that the spec does not select.
func (s Sources) World() World {
	w := World{DaemonSet: s.DaemonSet, Account: s.Account, Pods: s.Pods, Unregistered: map[string]bool{}}
	stores := map[string]bool{}
	for _, n := range s.Stores {
		stores[n.Name] = true
		w.Unregistered[n.Name] = !s.Registered[n.Name]
	}
	for _, n := range s.StorageNodes {
		if stores[n.Name] && v1beta1.ServerOf(n.Name) == "" {
			w.Nodes = append(w.Nodes, n)
		}
	}
	slices.SortFunc(w.Nodes, func(a, b *v1beta1.StorageNode) int { return cmp.Compare(a.Name, b.Name) })
	return w
}

// Storing returns the nodes that the spec selects, by name, and the last error of a selector.
func Storing(c *v1beta1.StorageCluster, nodes []*core.Node) (all []*core.Node, invalid error) {
	for _, n := range nodes {
		stores, err := render.Stores(c, n)
		if err != nil {
			invalid = err
		}
		if stores {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *core.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, invalid
}

// Registered returns the nodes where the driver is registered with the kubelet.
func Registered(nodes []*storage.CSINode, driver string) map[string]bool {
	all := map[string]bool{}
	for _, n := range nodes {
		all[n.Name] = IsRegistered(n, driver)
	}
	return all
}

// IsRegistered says whether the driver is registered with the kubelet of a node.
func IsRegistered(n *storage.CSINode, driver string) bool {
	return slices.ContainsFunc(n.Spec.Drivers, func(d storage.CSINodeDriver) bool { return d.Name == driver })
}
