package rollout

import (
	"cmp"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// World is the input of a step.
type World struct {
	DaemonSet *apps.DaemonSet        // nil if there is none
	Pods      []*core.Pod            // of the DaemonSet; others are ignored
	Nodes     []*v1beta1.StorageNode // that are to store, by name
	// Unregistered are nodes where the driver is not registered with the kubelet; nil: not checked.
	Unregistered map[string]bool
	// Account is when the pods' ServiceAccount was created: the API server refuses the tokens of older pods. Zero: not
	// checked.
	Account time.Time
}

// Caches are what a World is read from.
type Caches struct {
	Owned interface {
		Get(apply.Ref) *unstructured.Unstructured
	} // knows what was applied at once
	Pods              corelisters.PodLister
	StorageNodes      listers.StorageNodeLister
	CSINodes          storagelisters.CSINodeLister
	Namespace, Driver string
}

// World returns what runs on the nodes that are to store, which are sorted by name.
func (c Caches) World(stores []*core.Node) World {
	w := World{
		DaemonSet:    apply.Typed[apps.DaemonSet](c.Owned.Get(apply.RefTo(apps.GroupName, "DaemonSet", c.Namespace, v1beta1.NodeName))),
		Pods:         kube.Selected(c.Pods.Pods(c.Namespace).List, labels.Set{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: v1beta1.NodeComponent}),
		Unregistered: map[string]bool{},
	}
	if account := c.Owned.Get(apply.RefTo("", "ServiceAccount", c.Namespace, v1beta1.NodeName)); account != nil {
		w.Account = account.GetCreationTimestamp().Time
	}
	for _, n := range stores {
		kubelet, _ := c.CSINodes.Get(n.Name) // the only error of a cache is that there is none
		w.Unregistered[n.Name] = kubelet == nil || !IsRegistered(kubelet, c.Driver)
		if s, _ := c.StorageNodes.Get(n.Name); s != nil {
			w.Nodes = append(w.Nodes, s)
		}
	}
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

// IsRegistered says whether the driver is registered with the kubelet of a node.
func IsRegistered(n *storage.CSINode, driver string) bool {
	return slices.ContainsFunc(n.Spec.Drivers, func(d storage.CSINodeDriver) bool { return d.Name == driver })
}
