// Package rollout replaces the node pods of a DaemonSet that are outdated: one at a time, and only while all others
// work. The DaemonSet leaves that to it by the update strategy OnDelete.
//
// The strategy RollingUpdate only knows the readiness of pods. It would continue with the next node before the pools of
// the last one are open; if the readiness included them, a node with a broken disk would block every rollout. It does not
// replace pods whose account was recreated, which can write nothing any more, and for a stuck rollout it reports neither
// the pod nor the cause.
package rollout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// RevisionAnnotation identifies the template of a DaemonSet, on the template and so on its pods.
const RevisionAnnotation = "holdfast.dev/revision"

// UpgradeManager is the field manager of StorageUpgrades.
const UpgradeManager = "holdfast-upgrade"

// StampAll gives the templates of the DaemonSets among the objects their RevisionAnnotation. It is called before they are applied.
func StampAll(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		if err := stamp(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func stamp(workload *unstructured.Unstructured) error {
	at := []string{"spec", "template", "metadata", "annotations", RevisionAnnotation}
	if err := unstructured.SetNestedField(workload.Object, "", at...); err != nil {
		return err
	}
	template, _, err := unstructured.NestedMap(workload.Object, "spec", "template")
	if err != nil {
		return err
	}
	text, err := json.Marshal(template)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return unstructured.SetNestedField(workload.Object, hex.EncodeToString(sum[:8]), at...)
}

// Result is the state of a rollout.
type Result struct {
	Done    bool
	Total   int // desired pods
	Updated int // pods of the current template that are ready
	// Node is being updated: its pod was just deleted, or is not ready yet.
	Node string
	// Since is when the pod of Node was created, if it or its storage is not ready; zero while it is being replaced.
	Since time.Time
	// Waiting says what the rollout waits for; "" when Done.
	Waiting string
	// Stuck says that the new pod of Node does not start; Waiting says why. Only another template helps, or removing the
	// cause.
	Stuck bool
}

// Step replaces at most one pod. The caches may be behind, so a pod is deleted by its UID, and never twice.
func Step(ctx context.Context, client kubernetes.Interface, w World) (Result, error) {
	r, next := Plan(w)
	if next == nil {
		return r, nil
	}
	exact := *metav1.NewPreconditionDeleteOptions(string(next.UID))
	if err := kube.IgnoreGone(client.CoreV1().Pods(next.Namespace).Delete(ctx, next.Name, exact)); err != nil {
		return r, fmt.Errorf("replacing pod %s of node %s: %w", next.Name, next.Spec.NodeName, err)
	}
	return r, nil
}

// Plan returns the state of the rollout, and the pod to replace now, if any.
func Plan(w World) (Result, *core.Pod) {
	pods := w.own()
	r := Result{Total: int(w.DaemonSet.Status.DesiredNumberScheduled)}
	var outdated []*core.Pod
	for _, p := range pods {
		switch {
		case !w.current(p):
			outdated = append(outdated, p)
		case podstatus.IsReady(p):
			r.Updated++
		}
	}
	if w.DaemonSet.Status.ObservedGeneration < w.DaemonSet.Generation {
		r.Waiting = "Kubernetes to observe the new DaemonSet " + w.DaemonSet.Name
		return r, nil
	}
	if w.hindered(&r, pods) {
		return r, nil
	}
	// Replacing a pod that is not ready loses nothing, and may help; so it may for storage that is not ready, which the old
	// template may have caused.
	slices.SortStableFunc(outdated, func(a, b *core.Pod) int { return cmp.Compare(w.loss(a), w.loss(b)) }) // they are sorted by node
	switch {
	case len(outdated) == 0 && len(pods) < r.Total:
		w.missing(&r, pods)
		return r, nil
	case len(outdated) == 0:
		r.Done = true
		return r, nil
	}
	next := outdated[0]
	if w.works(next) {
		if len(pods) < r.Total {
			w.missing(&r, pods)
			return r, nil
		}
		if node, since := w.unready(pods); node != nil && w.stores(next) {
			r.Node, r.Since, r.Waiting = node.Name, since, fmt.Sprintf("node %s, whose storage is not ready%s", node.Name, because(node))
			return r, nil
		}
	}
	r.Node, r.Waiting = next.Spec.NodeName, fmt.Sprintf("the pod of node %s, which is being replaced", next.Spec.NodeName)
	return r, next
}

// missing returns a node whose pod was just deleted and that has no new one yet.
func (w World) missing(r *Result, pods []*core.Pod) {
	r.Waiting = fmt.Sprintf("%d of %d node pods to be created", r.Total-len(pods), r.Total)
	var without []string
	for _, n := range w.Nodes {
		if !slices.ContainsFunc(pods, func(p *core.Pod) bool { return p.Spec.NodeName == n.Name }) {
			without = append(without, n.Name)
		}
	}
	if len(without) == 0 {
		return
	}
	r.Node = without[0]
	r.Waiting += "; without one: " + kube.Few(without, mostNamed, ", ", ", %d more")
}

// mostNamed is how many nodes a message names.
const mostNamed = 5

// hindered says whether a pod is being deleted or a new one is not ready, so that no other may be replaced.
func (w World) hindered(r *Result, pods []*core.Pod) bool {
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			r.Node, r.Waiting = p.Spec.NodeName, fmt.Sprintf("pod %s of node %s to end", p.Name, p.Spec.NodeName)
			return true
		}
	}
	for _, p := range pods {
		if w.current(p) && !podstatus.IsReady(p) {
			r.Node, r.Since = p.Spec.NodeName, p.CreationTimestamp.Time
			why, stuck := Trouble(p)
			r.Stuck, r.Waiting = stuck, fmt.Sprintf("pod %s of node %s to become ready%s", p.Name, p.Spec.NodeName, kube.Because(": ", why))
			return true
		}
		if w.current(p) && w.Unregistered[p.Spec.NodeName] {
			r.Node, r.Since = p.Spec.NodeName, p.CreationTimestamp.Time
			r.Waiting = fmt.Sprintf("the driver to be registered with the kubelet of node %s", p.Spec.NodeName)
			return true
		}
	}
	return false
}

// own returns the pods of the DaemonSet that run or will run, by node.
func (w World) own() []*core.Pod {
	var all []*core.Pod
	for _, p := range w.Pods {
		if !podstatus.HasEnded(p) && metav1.IsControlledBy(p, w.DaemonSet) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *core.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return all
}

// isCutOff says whether the ServiceAccount of a pod was deleted. A recreated one has another UID, so the pod's token stays
// invalid.
func (w World) isCutOff(p *core.Pod) bool { return p.CreationTimestamp.Time.Before(w.Account) }

func (w World) works(p *core.Pod) bool { return podstatus.IsReady(p) && !w.isCutOff(p) }

// stores says whether the storage of a pod's node is ready or unknown.
func (w World) stores(p *core.Pod) bool {
	return !slices.ContainsFunc(w.Nodes, func(n *v1beta1.StorageNode) bool { return n.Name == p.Spec.NodeName && !isReady(n) })
}

func isReady(n *v1beta1.StorageNode) bool {
	return meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.ReadyCondition)
}

// current says whether a pod has all annotations of the template, one of which identifies it, and its account.
func (w World) current(p *core.Pod) bool {
	if w.isCutOff(p) {
		return false
	}
	for key, value := range w.DaemonSet.Spec.Template.Annotations {
		if p.Annotations[key] != value {
			return false
		}
	}
	return true
}

// unready returns a StorageNode of a node that has a pod, which is not Ready, and since when the pod exists.
func (w World) unready(pods []*core.Pod) (*v1beta1.StorageNode, time.Time) {
	for _, n := range w.Nodes {
		i := slices.IndexFunc(pods, func(p *core.Pod) bool { return p.Spec.NodeName == n.Name })
		if i >= 0 && !isReady(n) {
			return n, pods[i].CreationTimestamp.Time
		}
	}
	return nil, time.Time{}
}

func because(n *v1beta1.StorageNode) string {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.ReadyCondition); c != nil {
		return kube.Because(": ", c.Message)
	}
	return ""
}

// loss grows with what works and is interrupted when a pod is replaced.
func (w World) loss(p *core.Pod) (loss int) {
	if w.works(p) {
		loss += 2
	}
	if w.stores(p) {
		loss++
	}
	return loss
}
