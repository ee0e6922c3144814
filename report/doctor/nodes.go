package doctor

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// storing are the nodes that are to store.
func (f *Facts) storing() (chosen []*core.Node, err error) {
	c := f.served()
	if c == nil {
		return nil, nil
	}
	for i := range f.Nodes {
		stores, err := render.Stores(c, &f.Nodes[i])
		if err != nil {
			return nil, err
		}
		if stores {
			chosen = append(chosen, &f.Nodes[i])
		}
	}
	return chosen, nil
}

func lookAtNodes(f *Facts) (found []Finding) {
	chosen, err := f.storing()
	if err != nil {
		return []Finding{problem("", "Correct it.", "spec.nodeSelectorTerms of the StorageCluster cannot be read: %v", err)}
	}
	if c := f.served(); c != nil && len(chosen) == 0 {
		return []Finding{problem("StorageCluster "+c.Name, "Correct the terms, or label nodes so that they match.", "spec.nodeSelectorTerms match none of the %d nodes", len(f.Nodes))}
	}
	for _, n := range chosen {
		if finding, well := f.agent(n); !well {
			found = append(found, finding)
		}
	}
	return append(found, f.ailingPools()...)
}

// ailingPools are those whose file systems have met errors, on nodes and NFS servers.
func (f *Facts) ailingPools() (found []Finding) {
	for i := range f.StorageNodes {
		n := &f.StorageNodes[i]
		if c := meta.FindStatusCondition(n.Status.Conditions, v1.HealthyCondition); c != nil && c.Status == metav1.ConditionFalse {
			found = append(found, problem("StorageNode "+n.Name, "Save what is in the pool, drain the node, and check the file system while it is not mounted. See docs/reliability.md.", "%s", c.Message))
		}
	}
	return found
}

// agent says what is wrong on a node that is to store: its pod, or what the pod says.
func (f *Facts) agent(n *core.Node) (Finding, bool) {
	object := "Node " + n.Name
	pod := f.nodePod(n.Name)
	if pod == nil {
		return problem(object, fmt.Sprintf("See kubectl -n %s describe daemonset holdfast-node.", f.Namespace), "no pod of Holdfast is there"), false
	}
	if why := notReady(f, pod); why != "" {
		return problem(object, logs(pod), "pod %s does not run there: %s", pod.Name, why), false
	}
	i := slices.IndexFunc(f.StorageNodes, func(s v1.StorageNode) bool { return s.Name == n.Name })
	if i < 0 {
		return problem(object, logs(pod), "the agent runs there and has not told what the node can store"), false
	}
	ready := meta.FindStatusCondition(f.StorageNodes[i].Status.Conditions, v1.ReadyCondition)
	switch {
	case ready == nil:
		return problem(object, logs(pod), "the agent has not said yet whether it is ready"), false
	case ready.Status != metav1.ConditionTrue:
		return problem(object, "", "%s", ready.Message), false
	}
	return Finding{}, true
}

func (f *Facts) nodePod(node string) *core.Pod {
	all := f.podsOfPart(v1.NodeComponent)
	if i := slices.IndexFunc(all, func(p *core.Pod) bool { return p.Spec.NodeName == node }); i >= 0 {
		return all[i]
	}
	return nil
}

func lookAtKubelets(f *Facts) (found []Finding) {
	if !f.withCSI() {
		return nil
	}
	chosen, err := f.storing()
	if err != nil {
		return nil // told by another check
	}
	for _, n := range chosen {
		pod := f.nodePod(n.Name)
		if pod == nil {
			continue // likewise
		}
		dir, usual := kubeletDir(pod), likelyKubeletDir(n)
		do := fmt.Sprintf("Set spec.csi.kubeletDir of the StorageCluster to the kubelet's --root-dir, which ps -o args= -C kubelet shows on the node. It is %s now.", dir)
		if usual != "" && usual != dir {
			do = fmt.Sprintf("Set spec.csi.kubeletDir of the StorageCluster to %s, where the kubelet of such a node has it. It is %s now.", usual, dir)
		}
		if e := f.lastWarning("Pod", pod.Namespace, pod.Name); e != nil && e.Reason == "FailedMount" && strings.Contains(e.Message, "hostPath") && notReady(f, pod) != "" {
			found = append(found, problem("Node "+n.Name, do, "a directory of the node is not there: %s", e.Message))
			continue
		}
		if notReady(f, pod) == "" && !f.registered(n.Name) {
			found = append(found, problem("Node "+n.Name, do, "its kubelet does not know the driver %s, although the pod runs: no volume can be mounted there", f.Driver))
		}
	}
	return found
}

func (f *Facts) registered(node string) bool {
	for i := range f.CSINodes {
		if f.CSINodes[i].Name != node {
			continue
		}
		for _, d := range f.CSINodes[i].Spec.Drivers {
			if d.Name == f.Driver {
				return true
			}
		}
	}
	return false
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

// likelyKubeletDir is known of distributions that show in a Node.
func likelyKubeletDir(n *core.Node) string {
	version := n.Status.NodeInfo.KubeletVersion
	_, microk8s := n.Labels["microk8s.io/cluster"]
	switch {
	case microk8s:
		return "/var/snap/microk8s/common/var/lib/kubelet"
	case strings.Contains(version, "+k0s"):
		return "/var/lib/k0s/kubelet"
	case strings.Contains(version, "+k3s"), strings.Contains(version, "+rke2"), strings.Contains(n.Status.NodeInfo.OSImage, "Talos"):
		return "/var/lib/kubelet"
	}
	return ""
}

// fullAt is the share of a pool's file system from which on it counts as full.
const fullAt = 0.95

func lookAtPools(f *Facts) (found []Finding) {
	for i := range f.StorageNodes {
		n := &f.StorageNodes[i]
		for j := range n.Status.Pools {
			p := &n.Status.Pools[j]
			object := fmt.Sprintf("pool %s of node %s", p.Name, n.Name)
			capacity, used := p.Capacity.AsApproximateFloat64(), p.Used.AsApproximateFloat64()
			switch {
			case p.Message != "":
				found = append(found, problem(object, "", "%s", p.Message))
			case capacity > 0 && used >= fullAt*capacity:
				found = append(found, problem(object, "Delete what is not needed, or add a disk: volumes that are made thin fail when it is full.", "its file system is full to %.0f%%", 100*used/capacity))
			case p.Available.Sign() <= 0 || p.Available.Cmp(p.Smallest) < 0:
				found = append(found, warn(object, "Delete volumes or snapshots, add a disk, or raise overcommit.", "all of it is promised: no volume can be made there"))
			}
		}
	}
	return found
}

// lookAtSharedVolumes names the nodes that cannot mount them, where there are any.
func lookAtSharedVolumes(f *Facts) (found []Finding) {
	if len(f.Servers) == 0 {
		return nil
	}
	for i := range f.StorageNodes {
		n := &f.StorageNodes[i]
		if c := meta.FindStatusCondition(n.Status.Conditions, v1.SharedVolumesCondition); c != nil && c.Status == metav1.ConditionFalse {
			found = append(found, warn("Node "+n.Name, "Or keep pods with shared volumes from it: a class with allowedTopologies of "+v1.SharedVolumesKey+"=true does.",
				"pods with shared volumes do not start there: %s", c.Message))
		}
	}
	return found
}

func lookAtDriver(f *Facts) []Finding {
	known := slices.ContainsFunc(f.Drivers, func(d storage.CSIDriver) bool { return d.Name == f.Driver })
	c := f.served()
	switch {
	case c == nil:
		return nil
	case f.withCSI() && !known:
		return []Finding{problem("CSIDriver "+f.Driver, "The controller makes it; see what StorageCluster "+c.Name+" says.", "it is missing: Kubernetes does not know how to use the driver")}
	}
	return nil
}
