package held

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Hidden is a pool whose volumes a spec would hide.
type Hidden struct {
	Field string // that would do it
	Why   string
	Pool  v1beta1.HeldPool
	Nodes []string // that would lose the pool
}

// Effective returns a StorageCluster as it may be applied: if its spec would hide volumes, its pools and their nodes are
// replaced by the running ones. If those are not known, it must not be applied, and the error says so.
func Effective(c *v1beta1.StorageCluster, running *render.Carried, pools []v1beta1.HeldPool, nodes []*core.Node) (*v1beta1.StorageCluster, []Hidden, error) {
	hidden := Check(c, pools, nodes)
	switch {
	case len(hidden) == 0:
		return c, nil, nil
	case running == nil:
		return c, hidden, errors.New(text("and the ConfigMap and the DaemonSet "+v1beta1.NodeName+" do not say which pools the nodes have, so nothing of it is applied", hidden))
	}
	c = c.DeepCopy()
	c.Spec.Pools, c.Spec.NodeSelectorTerms, c.Spec.CSI.Enabled = running.Pools, running.NodeSelectorTerms, nil
	return c, hidden, nil
}

// Check returns the pools that a spec would hide, except those that its annotation allows to hide.
func Check(c *v1beta1.StorageCluster, pools []v1beta1.HeldPool, nodes []*core.Node) (all []Hidden) {
	byName := map[string]*core.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	for _, p := range pools {
		if mayHide(c, p.Name) {
			continue
		}
		if h := check(c, p, byName); h != nil {
			h.Pool = p
			all = append(all, *h)
		}
	}
	return all
}

// mayHide says whether an annotation allows to hide a pool.
func mayHide(c *v1beta1.StorageCluster, pool string) bool {
	allowed := strings.Split(c.Annotations[v1beta1.AllowHidingAnnotation], ",")
	return slices.ContainsFunc(allowed, func(name string) bool { return strings.TrimSpace(name) == pool })
}

func check(c *v1beta1.StorageCluster, p v1beta1.HeldPool, nodes map[string]*core.Node) *Hidden {
	if !render.WithCSI(&c.Spec) {
		return &Hidden{Field: "spec.csi.enabled", Why: "false leaves no node with its volumes", Nodes: p.Nodes}
	}
	has := slices.DeleteFunc(render.Pools(c), func(w v1beta1.PoolSpec) bool {
		name, _ := v1beta1.InSpec(w.Name)
		return name != p.Name
	})
	if len(has) == 0 {
		return &Hidden{Field: "spec.pools", Why: "it no longer has a pool of this name", Nodes: p.Nodes}
	}
	w := &has[0]
	switch field := render.FieldOf(c, p.Name).String(); {
	case p.Devices != nil && len(has) < int(p.Devices.Count):
		return &Hidden{Field: field + ".devices.count", Why: fmt.Sprintf("device %d of a node holds some of them", p.Devices.Count), Nodes: p.Nodes}
	case (w.Devices == nil) != (p.Devices == nil), w.Devices != nil && !covers(w.Devices, p.Devices):
		return &Hidden{Field: field + ".devices", Why: "it may no longer select the devices that it has", Nodes: p.Nodes}
	case render.Place(w) != p.Path && w.Ceph != nil:
		return &Hidden{Field: field + ".ceph", Why: fmt.Sprintf("%s is another place than %s", render.Place(w), p.Path), Nodes: p.Nodes}
	case render.Place(w) != p.Path:
		return &Hidden{Field: field + ".path", Why: fmt.Sprintf("%s is another directory than %s", render.Place(w), p.Path), Nodes: p.Nodes}
	case engine(w) != p.Engine:
		return &Hidden{Field: field + ".engine", Why: fmt.Sprintf("%s cannot read the volumes of %s", engine(w), p.Engine), Nodes: p.Nodes}
	}
	if left := leftBehind(c, p, nodes); len(left) > 0 {
		return &Hidden{Field: "nodeSelectorTerms", Why: "they leave out " + some(left), Nodes: left}
	}
	return nil
}

// leftBehind returns the nodes that hold volumes in a pool and would lose the pool. The check of the spec reports invalid
// terms.
func leftBehind(c *v1beta1.StorageCluster, p v1beta1.HeldPool, nodes map[string]*core.Node) (left []string) {
	for _, name := range p.Nodes {
		n := nodes[name]
		if n == nil {
			continue
		}
		has, err := render.NodePools(c, n)
		if err == nil && !slices.ContainsFunc(has, func(w v1beta1.PoolSpec) bool { return w.Name == p.Name }) {
			left = append(left, name)
		}
	}
	return left
}

func namesDevices(s *v1beta1.DeviceSelector) bool { return len(s.Paths) > 0 || s.Model != "" }

// covers says whether a selector selects all that another one selected.
func covers(now, was *v1beta1.DeviceSelector) bool {
	switch {
	case len(now.Paths) > 0 && (len(was.Paths) == 0 || slices.ContainsFunc(was.Paths, func(p string) bool { return !slices.Contains(now.Paths, p) })):
		return false
	case namesDevices(was) && !namesDevices(now): // some devices are used only if they are named
		return false
	case now.Model != "" && now.Model != was.Model:
		return false
	case now.Rotational != nil && (was.Rotational == nil || *now.Rotational != *was.Rotational):
		return false
	}
	return now.MinSize == nil || was.MinSize != nil && now.MinSize.Cmp(*was.MinSize) <= 0
}
