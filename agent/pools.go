package agent

import (
	"context"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// followPools publishes pools that become available or unavailable at once, until ctx ends.
func (a *Agent) followPools(ctx context.Context) {
	if a.pools == nil {
		return
	}
	a.pools.NotifyPools(func() { kube.Notify(a.poolsChanged) })
	context.AfterFunc(ctx, func() { a.pools.NotifyPools(nil) })
}

// recordPools writes an event on the StorageNode for each pool that went out of reach or came back.
func (a *Agent) recordPools(before, now *v1beta1.StorageNodeStatus) {
	for _, p := range now.Pools {
		switch {
		case p.Reason == reportedPool(before, p.Name).Reason:
		case p.Reason != "":
			a.Events.Eventf(a.aboutNode(), core.EventTypeWarning, p.Reason, "%s", p.Message)
		default:
			a.Events.Eventf(a.aboutNode(), core.EventTypeNormal, "PoolRecovered", "pool %s at %s can be used again", p.Name, p.Path)
		}
	}
}

// warning is a condition of a pool that can be used now.
type warning struct {
	condition, refused, accepted string // its type and reasons
	ended                        string // what the event about its end says
	why                          func(backend.Warner) error
}

var warnings = []warning{
	{
		v1beta1.KeyRefusedCondition, v1beta1.ReasonKeyRefused, v1beta1.ReasonKeyAccepted,
		"the pool is served with the key that its secret has", backend.Warner.Warning,
	},
	{
		v1beta1.NodeUserRefusedCondition, v1beta1.ReasonNodeUserRefused, v1beta1.ReasonNodeUserAccepted,
		"nodes can use the volumes of the pool", backend.Warner.NodeWarning,
	},
}

// addWarnings adds what is wrong with a pool that can be used now. It stays while the pool cannot be used.
func (a *Agent) addWarnings(s *v1beta1.StorageNodeStatus) {
	if a.warner == nil {
		return
	}
	for _, w := range warnings {
		c := metav1.Condition{Type: w.condition, Status: metav1.ConditionFalse, Reason: w.accepted, ObservedGeneration: s.ObservedGeneration}
		why := w.why(a.warner)
		switch {
		case why != nil:
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, w.refused, kube.Shorten(why.Error(), kube.LongestMessage)
		case meta.FindStatusCondition(s.Conditions, c.Type) == nil || !meta.IsStatusConditionTrue(s.Conditions, v1beta1.ReadyCondition):
			continue
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// recordWarnings writes an event on the StorageNode when a key is refused, and when one is accepted after that.
func (a *Agent) recordWarnings(before, now *v1beta1.StorageNodeStatus) {
	for _, w := range warnings {
		is := meta.FindStatusCondition(now.Conditions, w.condition)
		was := meta.IsStatusConditionTrue(before.Conditions, w.condition)
		switch {
		case is == nil || was == (is.Status == metav1.ConditionTrue):
		case was:
			a.Events.Eventf(a.aboutNode(), core.EventTypeNormal, is.Reason, "%s", w.ended)
		default:
			a.Events.Eventf(a.aboutNode(), core.EventTypeWarning, is.Reason, "%s", is.Message)
		}
	}
}

func (a *Agent) aboutNode() runtime.Object {
	if n := a.nodeObject(); n != nil {
		return n
	}
	return &core.ObjectReference{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageNode", Name: a.Node}
}

// dropReplacements removes the request to give up a pool that is served, because its disk was found. Otherwise the
// request would create a new pool when the disk is missing the next time.
func (a *Agent) dropReplacements(ctx context.Context, now *v1beta1.StorageNodeStatus) error {
	n := a.nodeObject()
	if n == nil {
		return nil
	}
	served := func(r v1beta1.PoolReplacement) bool {
		return slices.ContainsFunc(now.Pools, func(p v1beta1.Pool) bool { return p.Name == r.Name && p.ID == r.ID && p.Message == "" })
	}
	rest := slices.DeleteFunc(slices.Clone(n.Spec.ReplacePools), served)
	if len(rest) == len(n.Spec.ReplacePools) {
		return nil
	}
	change := map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"replacePools": rest}}
	if _, err := kube.MergePatch(ctx, a.Client.HoldfastV1beta1().StorageNodes().Patch, a.Node, change, fieldManager); err != nil {
		return err
	}
	a.Events.Eventf(n, core.EventTypeNormal, "PoolKept", "a pool in spec.replacePools exists and is served: it is not given up, and is removed from the list")
	return nil
}
