package agent

import (
	"context"
	"encoding/json"
	"slices"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// followPools publishes pools that become available or unavailable at once, until ctx ends.
func (a *Agent) followPools(ctx context.Context) {
	if a.pools == nil {
		return
	}
	a.pools.NotifyPools(func() {
		select {
		case a.poolsChanged <- struct{}{}:
		default:
		}
	})
	context.AfterFunc(ctx, func() { a.pools.NotifyPools(nil) })
}

// recordPools writes an event on the StorageNode for each pool that went out of reach or came back.
func (a *Agent) recordPools(before, now *v1beta1.StorageNodeStatus) {
	for _, p := range now.Pools {
		var was v1beta1.Pool
		if before != nil {
			if i := slices.IndexFunc(before.Pools, func(b v1beta1.Pool) bool { return b.Name == p.Name }); i >= 0 {
				was = before.Pools[i]
			}
		}
		switch {
		case p.Reason == was.Reason:
		case p.Reason != "":
			a.eventf(a.aboutNode(), core.EventTypeWarning, p.Reason, "%s", p.Message)
		default:
			a.eventf(a.aboutNode(), core.EventTypeNormal, "PoolRecovered", "pool %s at %s can be used again", p.Name, p.Path)
		}
	}
}

// addWarning adds what will make a pool unusable that can be used now. It stays while the pool cannot be used.
func (a *Agent) addWarning(s *v1beta1.StorageNodeStatus) {
	var why error
	if a.warner != nil {
		why = a.warner.Warning()
	}
	c := metav1.Condition{Type: v1beta1.KeyRefusedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonKeyAccepted, ObservedGeneration: s.ObservedGeneration}
	switch {
	case why != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonKeyRefused, kube.Shorten(why.Error(), kube.LongestMessage)
	case meta.FindStatusCondition(s.Conditions, c.Type) == nil || !meta.IsStatusConditionTrue(s.Conditions, v1beta1.ReadyCondition):
		return
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// recordWarning writes an event on the StorageNode when a new key is refused, and when one is accepted after that.
func (a *Agent) recordWarning(before, now *v1beta1.StorageNodeStatus) {
	is := meta.FindStatusCondition(now.Conditions, v1beta1.KeyRefusedCondition)
	was := before != nil && meta.IsStatusConditionTrue(before.Conditions, v1beta1.KeyRefusedCondition)
	switch {
	case is == nil || was == (is.Status == metav1.ConditionTrue):
	case was:
		a.eventf(a.aboutNode(), core.EventTypeNormal, is.Reason, "the pool is served with the key that its secret has")
	default:
		a.eventf(a.aboutNode(), core.EventTypeWarning, is.Reason, "%s", is.Message)
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
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"replacePools": rest},
	})
	if err != nil {
		return err
	}
	if _, err = a.Client.HoldfastV1beta1().StorageNodes().Patch(ctx, a.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return err
	}
	a.eventf(n, core.EventTypeNormal, "PoolKept", "a pool in spec.replacePools exists and is served: it is not given up, and is removed from the list")
	return nil
}
