package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// storing are the nodes that are to store.
func storing(f *Facts) (chosen []*core.Node, err error) {
	c := f.Served()
	if c == nil {
		return nil, nil
	}
	for _, n := range f.Nodes {
		stores, err := render.Stores(c, n)
		if err != nil {
			return nil, err
		}
		if stores {
			chosen = append(chosen, n)
		}
	}
	return chosen, nil
}

func checkNodes(f *Facts) (found []Finding) {
	chosen, err := storing(f)
	if err != nil {
		return []Finding{problem("", "Correct it.", "spec.nodeSelectorTerms of the StorageCluster cannot be read: %v", err)}
	}
	if c := f.Served(); c != nil && len(chosen) == 0 {
		return []Finding{problem("StorageCluster "+c.Name, "Correct the terms, or label nodes so that they match.", "spec.nodeSelectorTerms match none of the %d nodes", len(f.Nodes))}
	}
	for _, n := range chosen {
		if finding, well := agent(f, n); !well {
			found = append(found, finding)
		}
	}
	return append(found, ailingPools(f)...)
}

// ailingPools are those whose file systems have met errors, on nodes and NFS servers.
func ailingPools(f *Facts) (found []Finding) {
	for _, n := range f.StorageNodes {
		if why := facts.Ailing(n); why != "" {
			found = append(found, problem("StorageNode "+n.Name, "Save what is in the pool, drain the node, and check the file system while it is not mounted. See docs/reliability.md.", "%s", why))
		}
	}
	return found
}

// agent says what is wrong on a node that is to store: its pod, or what the pod says.
func agent(f *Facts, n *core.Node) (Finding, bool) {
	object := "Node " + n.Name
	pod := nodePod(f, n.Name)
	if pod == nil {
		return problem(object, fmt.Sprintf("See kubectl -n %s describe daemonset holdfast-node.", f.Namespace), "no pod of Holdfast is there"), false
	}
	if why := notReady(f, pod); why != "" {
		return problem(object, logs(pod), "pod %s does not run there: %s", pod.Name, why), false
	}
	i := slices.IndexFunc(f.StorageNodes, func(s *v1beta1.StorageNode) bool { return s.Name == n.Name })
	if i < 0 {
		return problem(object, logs(pod), "the agent runs there and has not reported what the node can store"), false
	}
	if ready, why := facts.Ready(f.StorageNodes[i]); ready != metav1.ConditionTrue {
		return problem(object, logs(pod), "%s", why), false
	}
	return Finding{}, true
}

func nodePod(f *Facts, node string) *core.Pod {
	all := podsOfPart(f, v1beta1.NodeComponent)
	if i := slices.IndexFunc(all, func(p *core.Pod) bool { return p.Spec.NodeName == node }); i >= 0 {
		return all[i]
	}
	return nil
}

func checkKubelets(f *Facts) (found []Finding) {
	if !f.WithCSI() {
		return nil
	}
	chosen, err := storing(f)
	if err != nil {
		return nil // reported by another check
	}
	for _, n := range chosen {
		pod := nodePod(f, n.Name)
		if pod == nil {
			continue // likewise
		}
		dir, usual := kubeletDir(pod), render.KubeletDirOf(n)
		do := fmt.Sprintf("Set spec.csi.kubeletDir of the StorageCluster to the kubelet's --root-dir, which ps -o args= -C kubelet shows on the node. It is %s now.", dir)
		if usual != "" && usual != dir {
			do = fmt.Sprintf("Set spec.csi.kubeletDir of the StorageCluster to %s, where the kubelet of such a node has it. It is %s now.", usual, dir)
		}
		if e := f.LastWarning("Pod", pod.Namespace, pod.Name); e != nil && e.Reason == "FailedMount" && strings.Contains(e.Message, "hostPath") && notReady(f, pod) != "" {
			found = append(found, problem("Node "+n.Name, do, "a directory of the node is not there: %s", e.Message))
			continue
		}
		if notReady(f, pod) == "" && !registered(f, n.Name) {
			found = append(found, problem("Node "+n.Name, do, "its kubelet does not know the driver %s, although the pod runs: no volume can be mounted there", f.Driver))
		}
	}
	return found
}

func registered(f *Facts, node string) bool {
	return slices.ContainsFunc(f.CSINodes, func(n *storage.CSINode) bool {
		return n.Name == node && slices.ContainsFunc(n.Spec.Drivers, func(d storage.CSINodeDriver) bool { return d.Name == f.Driver })
	})
}

// kubeletDir is what the pod of a node takes for it.
func kubeletDir(p *core.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.Name == "kubelet" && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return "unknown"
}

func checkPools(f *Facts) (found []Finding) {
	for _, n := range f.StorageNodes {
		for i := range n.Status.Pools {
			p := &n.Status.Pools[i]
			if level, what, do := facts.OfPool(p); level != Fine {
				found = append(found, Finding{Level: level, Object: poolName(n.Name, p.Name), What: what, Do: do})
			}
		}
		if why := facts.KeyRefused(n); why != "" {
			found = append(found, warn(v1beta1.SiteOf(n.Name).String(), "", "%s", why))
		}
		if why := facts.NodeUserRefused(n); why != "" {
			found = append(found, warn(v1beta1.SiteOf(n.Name).String(), "See docs/ceph.md, What can be wrong.", "%s", why))
		}
	}
	return append(found, checkSnapshotCost(f)...)
}

// checkSnapshotCost says before the first snapshot where one is a full copy.
func checkSnapshotCost(f *Facts) []Finding {
	var full []string
	for _, n := range f.StorageNodes {
		for _, p := range n.Status.Pools {
			if p.SnapshotCost == v1beta1.SnapshotFull && p.Engine == v1beta1.EngineImage && p.Message == "" {
				full = append(full, fmt.Sprintf("%s (%s)", poolName(n.Name, p.Name), p.FileSystem))
			}
		}
	}
	if len(full) == 0 {
		return nil
	}
	return []Finding{note("", "For snapshots, use xfs or btrfs below the pool, or an empty disk: docs/pools.md.",
		"a snapshot or clone is a full copy in %s. A pod that uses the volume waits for it, 10 seconds at most; what takes longer is refused while the volume is in use", kube.Few(full, 5, ", ", " and %d more pools"))}
}

// checkFences names the nodes that are shut out of Ceph clusters, are to be, or cannot be.
func checkFences(f *Facts) (found []Finding) {
	for _, n := range f.StorageNodes {
		if fence := facts.OfFence(n); fence != nil {
			found = append(found, Finding{Level: fence.Level, Object: "Node " + n.Name, What: fence.What, Do: cmp.Or(fence.Do, "See docs/fencing.md.")})
		}
	}
	return found
}

func poolName(node, pool string) string {
	site := v1beta1.SiteOf(node)
	if site.Kind == v1beta1.SiteCephPool {
		return site.String()
	}
	return fmt.Sprintf("pool %s of %s", pool, site)
}

// checkSharedVolumes names the nodes that cannot mount them, where there are any.
func checkSharedVolumes(f *Facts) (found []Finding) {
	if len(f.Servers) == 0 {
		return nil
	}
	for _, n := range f.StorageNodes {
		if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.SharedVolumesCondition); c != nil && c.Status == metav1.ConditionFalse {
			found = append(found, warn("Node "+n.Name, "Or keep pods with shared volumes from it: a class with allowedTopologies of "+v1beta1.SharedVolumesKey+"=true does.",
				"pods with shared volumes do not start there: %s", c.Message))
		}
	}
	return found
}

// checkCephVolumes names the nodes whose kernel cannot use them, and the module that is missing.
func checkCephVolumes(f *Facts) (found []Finding) {
	for _, n := range f.StorageNodes {
		for _, why := range facts.NoCephClients(n) {
			found = append(found, warn("Node "+n.Name, "Or leave it as it is: pods with such volumes are scheduled to other nodes.", "%s", why))
		}
	}
	return found
}

func checkDriver(f *Facts) []Finding {
	known := slices.ContainsFunc(f.Drivers, func(d *storage.CSIDriver) bool { return d.Name == f.Driver })
	c := f.Served()
	switch {
	case c == nil:
		return nil
	case f.WithCSI() && !known:
		return []Finding{problem("CSIDriver "+f.Driver, "The controller makes it; see what StorageCluster "+c.Name+" says.", "it is missing: Kubernetes does not know how to use the driver")}
	}
	return nil
}
