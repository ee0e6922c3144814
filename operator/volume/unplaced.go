package volume

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// unplacedEvery is how often the pods that fit on no node are looked at while a node lacks a client. All pods of the cluster
// are not watched for that.
const unplacedEvery = time.Minute

// unplacedObserved is all that a plan for pods that fit on no node depends on.
type unplacedObserved struct {
	now         time.Time
	pods        []core.Pod
	volumes     map[types.NamespacedName]*v1beta1.Volume // by their claim, those that are not on a node
	lacking     map[string]lacking                       // by condition of StorageNodes
	reminded    map[types.UID]time.Time                  // by pod
	remindAfter time.Duration
}

// lacking are the nodes whose kernel lacks a client.
type lacking struct {
	nodes  []string
	reason string
	why    string // of the first
}

// planUnplaced plans an event, repeated now and then, for each pod that is on no node and has a volume that some nodes
// cannot use. The event of the scheduler says only that the affinity of the volume does not match.
func planUnplaced(o unplacedObserved) (events []event, reminded map[types.UID]time.Time) {
	reminded = map[types.UID]time.Time{}
	for i := range o.pods {
		pod := &o.pods[i]
		v, lacking := o.unusable(pod)
		if v == nil || !isUnschedulable(pod) {
			continue
		}
		last, is := o.reminded[pod.UID]
		if !is || o.now.Sub(last) >= o.remindAfter {
			last = o.now
			events = append(events, event{pod, lacking.reason, fmt.Sprintf("volume %s is in %s, and these nodes cannot use it: %s. On %s, %s",
				v.Name, v1beta1.SiteOf(v.Spec.Node), cluster.Few(lacking.nodes, ", "), lacking.nodes[0], lacking.why)})
		}
		reminded[pod.UID] = last
	}
	return events, reminded
}

// unusable is a volume of a pod that some nodes cannot use, and which they are.
func (o unplacedObserved) unusable(pod *core.Pod) (*v1beta1.Volume, lacking) {
	for _, claim := range podstatus.Claims(pod) {
		if v := o.volumes[types.NamespacedName{Namespace: pod.Namespace, Name: claim}]; v != nil {
			if lacking := o.lacking[neededClient(v)]; len(lacking.nodes) > 0 {
				return v, lacking
			}
		}
	}
	return nil, lacking{}
}

// neededClient is the condition of nodes that can use a volume; none says whether it is that of a node's own.
func neededClient(v *v1beta1.Volume) string {
	switch v1beta1.SiteOf(v.Spec.Node).Kind {
	case v1beta1.SiteNFSServer:
		return v1beta1.SharedVolumesCondition
	case v1beta1.SiteCephPool:
		if v.IsOfCephFS() {
			return v1beta1.CephFSVolumesCondition
		}
		return v1beta1.RBDVolumesCondition
	}
	return ""
}

func isUnschedulable(p *core.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.PodScheduled && c.Status == core.ConditionFalse && c.Reason == core.PodReasonUnschedulable
	})
}

// observeUnplaced asks the API server for nothing where each node has the clients, or no volume needs one.
func (l *leader) observeUnplaced(ctx context.Context) (unplacedObserved, error) {
	o := unplacedObserved{
		now: time.Now(), volumes: map[types.NamespacedName]*v1beta1.Volume{}, lacking: lackingClients(kube.Cached(l.storageNodes.List)),
		reminded: l.unplaced, remindAfter: l.RemindAfter,
	}
	for _, v := range kube.Cached(l.volumes.List) {
		if of := v.Spec.ClaimRef; of != nil && len(o.lacking[neededClient(v)].nodes) > 0 {
			o.volumes[types.NamespacedName{Namespace: of.Namespace, Name: of.Name}] = v
		}
	}
	if len(o.volumes) == 0 {
		return o, nil
	}
	options := metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName="}
	err := kube.Each(ctx, l.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List, options, func(p *core.Pod) { o.pods = append(o.pods, *p) })
	return o, err
}

func lackingClients(nodes []*v1beta1.StorageNode) map[string]lacking {
	all := map[string]lacking{}
	slices.SortFunc(nodes, func(a, b *v1beta1.StorageNode) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		for condition := range v1beta1.ClientLabels {
			c := meta.FindStatusCondition(n.Status.Conditions, condition)
			if c == nil || c.Status != metav1.ConditionFalse {
				continue
			}
			lacking := all[condition]
			if lacking.nodes = append(lacking.nodes, n.Name); lacking.why == "" {
				lacking.reason, lacking.why = c.Reason, c.Message
			}
			all[condition] = lacking
		}
	}
	return all
}

// lacksOthers says whether a node lacks other clients than before.
func lacksOthers(old, now any) bool {
	was, is := lackingClients([]*v1beta1.StorageNode{old.(*v1beta1.StorageNode)}), lackingClients([]*v1beta1.StorageNode{now.(*v1beta1.StorageNode)})
	return !maps.EqualFunc(was, is, func(a, b lacking) bool { return a.why == b.why })
}

func (l *leader) reconcileUnplaced(ctx context.Context, _ string) (again time.Duration, err error) {
	o, err := l.observeUnplaced(ctx)
	if err != nil {
		return 0, fmt.Errorf("which pods are on no node because of their volumes: %w", err)
	}
	events, reminded := planUnplaced(o)
	l.record(events...)
	l.unplaced = reminded
	if len(o.lacking) > 0 {
		again = unplacedEvery
	}
	return again, nil
}
