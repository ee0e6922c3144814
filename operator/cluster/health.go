package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// health returns the state of each storage node.
func (s *situation) health() []v1beta1.NodeHealth {
	pods := map[string]*core.Pod{}
	for _, p := range s.world.Pods {
		if has := pods[p.Spec.NodeName]; has == nil || !podstatus.IsReady(has) { // there may be two while one terminates
			pods[p.Spec.NodeName] = p
		}
	}
	all := make([]v1beta1.NodeHealth, 0, len(s.nodes))
	for _, n := range s.nodes {
		all = append(all, s.nodeHealth(n, pods[n.Name], s.storageNodes[n.Name]))
	}
	return all
}

func (s *situation) nodeHealth(n *core.Node, pod *core.Pod, storage *v1beta1.StorageNode) v1beta1.NodeHealth {
	h := v1beta1.NodeHealth{Name: n.Name, Registered: !s.world.Unregistered[n.Name]}
	var wrong []string
	note := func(ok bool, format string, args ...any) bool {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
		return ok
	}
	up := note(kube.IsReady(n), "the node is not ready for Kubernetes")
	runs := note(pod != nil && podstatus.IsReady(pod), "%s", podTrouble(pod))
	if storage == nil {
		h.Agent = note(false, "its agent has not reported yet")
		h.Registered = note(h.Registered, "the driver is not registered with the kubelet") && h.Registered
		h.Message = strings.Join(wrong, "; ")
		return h
	}
	h.Version = storage.Status.Version
	ready := meta.FindStatusCondition(storage.Status.Conditions, v1beta1.ReadyCondition)
	silent := ready == nil || ready.Status == metav1.ConditionUnknown
	h.Agent = note(!silent, "%s", silence(ready)) && runs && up
	h.Pools = len(storage.Status.Pools) > 0 || s.onlySites()
	h.Disk = h.Pools
	note(h.Pools, "it has no pool")
	for i := range storage.Status.Pools {
		p := &storage.Status.Pools[i]
		h.Pools = note(p.Message == "", "pool %s: %s", p.Name, p.Message) && h.Pools
		h.Disk = note(p.Message != "" || hasRoom(p), "pool %s has no room left: %s of %s are promised", p.Name, v1beta1.Readable(&p.Promised), v1beta1.Readable(&p.Capacity)) && h.Disk
	}
	note(h.Registered, "the driver is not registered with the kubelet")
	if ready != nil && ready.Status == metav1.ConditionFalse && h.Pools && (ready.Reason != v1beta1.ReasonNoPool || !s.onlySites()) {
		h.Pools = note(false, "%s", ready.Message)
	}
	h.Ready = h.Agent && h.Pools && h.Registered // a full disk serves what it has
	h.Message = strings.Join(wrong, "; ")
	return h
}

// hasRoom says whether one more volume of the smallest size fits.
func hasRoom(p *v1beta1.Pool) bool {
	return p.Largest.Sign() > 0 && p.Largest.Cmp(p.Smallest) >= 0
}

func podTrouble(p *core.Pod) string {
	if p == nil {
		return "it has no node pod"
	}
	if p.DeletionTimestamp != nil {
		return fmt.Sprintf("pod %s is ending", p.Name)
	}
	if why, _ := rollout.Trouble(p); why != "" {
		return fmt.Sprintf("pod %s is not ready: %s", p.Name, why)
	}
	return fmt.Sprintf("pod %s is not ready", p.Name)
}

func silence(ready *metav1.Condition) string {
	if ready == nil {
		return "its agent has not reported yet"
	}
	return ready.Message
}

// unready returns the names of the nodes that are not ready.
func unready(all []v1beta1.NodeHealth) (names []string) {
	for _, h := range all {
		if !h.Ready {
			names = append(names, h.Name)
		}
	}
	return names
}

// versions returns the newest version of the nodes, and the oldest while they differ.
func versions(all []v1beta1.NodeHealth) (newest, oldest string) {
	var found []string
	for _, h := range all {
		if h.Version != "" && !slices.Contains(found, h.Version) {
			found = append(found, h.Version)
		}
	}
	if len(found) == 0 {
		return "", ""
	}
	slices.SortFunc(found, compareVersions)
	if len(found) > 1 {
		oldest = found[0]
	}
	return found[len(found)-1], oldest
}

// compareVersions compares numbers as numbers and the rest as text.
func compareVersions(a, b string) int {
	x, y := strings.FieldsFunc(a, isSeparator), strings.FieldsFunc(b, isSeparator)
	return slices.CompareFunc(x, y, func(p, q string) int {
		if len(p) != len(q) && isNumber(p) && isNumber(q) {
			return cmp.Compare(len(p), len(q))
		}
		return cmp.Compare(p, q)
	})
}

func isSeparator(r rune) bool { return r == '.' || r == '-' || r == '+' }
func isNumber(s string) bool  { return strings.Trim(s, "0123456789") == "" }

// mostNamed is how many nodes a message names.
const mostNamed = 5

// complaints returns the messages of the nodes that are not ready.
func complaints(all []v1beta1.NodeHealth) string {
	var lines []string
	for _, h := range all {
		if !h.Ready {
			lines = append(lines, fmt.Sprintf("node %s: %s", h.Name, h.Message))
		}
	}
	return kube.Few(lines, mostNamed, ". ", ". and %d more nodes")
}
