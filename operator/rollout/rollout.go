// Package rollout replaces the node pods of a DaemonSet that are outdated: one at a time, and only while all others
// work. The DaemonSet leaves that to it by the update strategy OnDelete.
//
// The strategy RollingUpdate goes by the readiness of pods alone. It would take the next node while the pools of the last
// one are not open yet; were they part of the readiness, a node with a broken disk would end every rollout. It leaves pods
// alone whose account was made again, which can write nothing any more, and it says of a rollout that stands still that it
// does, but not at which pod and why.
package rollout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// RevisionAnnotation, on the template of a DaemonSet and so on its pods, identifies the template.
const RevisionAnnotation = "holdfast.dev/revision"

// Stamp gives the template of a workload its RevisionAnnotation. It is called before the workload is applied.
func Stamp(workload *unstructured.Unstructured) error {
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

// Result is where a rollout stands.
type Result struct {
	Done    bool
	Total   int // pods that there are to be
	Updated int // pods of the current template that are ready
	// Node at work: its pod was just deleted, or is not ready yet.
	Node string
	// Since the pod of Node exists, which is not ready or whose storage is not; zero while it is being replaced.
	Since time.Time
	// Waiting says what is waited for, "" when Done.
	Waiting string
	// Stuck: the pod of Node is a new one that does not start. Waiting says why. Only another template, or what hinders
	// the pod going away, helps.
	Stuck bool
}

// Step replaces at most one pod. The caches behind the world may be behind: a pod is replaced by its UID, so never twice.
func Step(ctx context.Context, client kubernetes.Interface, w World) (Result, error) {
	r, next := Plan(w)
	if next == nil {
		return r, nil
	}
	err := client.CoreV1().Pods(next.Namespace).Delete(ctx, next.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // it is deleted already
	}
	if err != nil {
		return r, fmt.Errorf("replacing pod %s of node %s: %w", next.Name, next.Spec.NodeName, err)
	}
	return r, nil
}

// Plan says where the rollout stands, and which pod is to be replaced now, if any.
func Plan(w World) (Result, *core.Pod) {
	pods := w.own()
	r := Result{Total: int(w.DaemonSet.Status.DesiredNumberScheduled)}
	var outdated []*core.Pod
	for _, p := range pods {
		switch {
		case !w.current(p):
			outdated = append(outdated, p)
		case IsReady(p):
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
	// A pod that does not work loses nothing, and the new one may mend it; so it may the storage that is not ready, which
	// may be what the old template did.
	slices.SortStableFunc(outdated, func(a, b *core.Pod) int {
		return cmp.Or(boolOrder(w.works(a), w.works(b)), boolOrder(w.stores(a), w.stores(b)), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
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

// missing is where a pod was just deleted, and the next is not there yet.
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
	if more := len(without) - mostNamed; more > 0 {
		without = append(without[:mostNamed], fmt.Sprintf("%d more", more))
	}
	r.Waiting += "; without one: " + strings.Join(without, ", ")
}

// mostNamed is how many nodes a message names.
const mostNamed = 5

// hindered says whether a pod is going or a new one is not ready, so that nothing may be replaced.
func (w World) hindered(r *Result, pods []*core.Pod) bool {
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			r.Node, r.Waiting = p.Spec.NodeName, fmt.Sprintf("pod %s of node %s to end", p.Name, p.Spec.NodeName)
			return true
		}
	}
	for _, p := range pods {
		if w.current(p) && !IsReady(p) {
			r.Node, r.Since = p.Spec.NodeName, p.CreationTimestamp.Time
			why, stuck := Trouble(p)
			r.Stuck, r.Waiting = stuck, fmt.Sprintf("pod %s of node %s to become ready%s", p.Name, p.Spec.NodeName, prefixed(why))
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

// own are the pods of the DaemonSet that run or are to run, by node.
func (w World) own() []*core.Pod {
	var all []*core.Pod
	for _, p := range w.Pods {
		if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed && metav1.IsControlledBy(p, w.DaemonSet) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *core.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return all
}

// isCutOff says whether a pod has lost its ServiceAccount. One of the same name is another.
func (w World) isCutOff(p *core.Pod) bool { return p.CreationTimestamp.Time.Before(w.Account) }

func (w World) works(p *core.Pod) bool { return IsReady(p) && !w.isCutOff(p) }

// stores says whether the storage of a pod's node is ready, or nothing is known of it.
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
		return prefixed(c.Message)
	}
	return ""
}

func prefixed(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// StampAll stamps the DaemonSets among the objects.
func StampAll(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" {
			if err := Stamp(o); err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}
