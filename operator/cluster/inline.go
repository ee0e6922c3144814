package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

const reasonInlineInUse = "VolumesInUse"

// hasInline says whether a node reports inline ephemeral volumes. Their number changes with every such pod.
func hasInline(n *v1beta1.StorageNode) bool {
	count := n.Status.InlineVolumes
	return count != nil && *count > 0
}

// mayHaveInline is false only if an agent that creates no more of them has counted none. The count of an agent that still
// creates them may miss the last one, and older agents report none.
func mayHaveInline(n *v1beta1.StorageNode) bool {
	more := n.Status.InlineVolumesAllowed
	return hasInline(n) || n.Status.InlineVolumes == nil || more == nil || *more
}

// keepsInline says whether the CSIDriver keeps the mode Ephemeral although such volumes are not allowed: without it, the
// kubelets restart no container of a pod with such a volume. It never adds the mode: without it, there are none.
func (r *Controller) keepsInline() bool {
	driver := apply.Typed[storage.CSIDriver](r.Owned.Get(apply.RefTo(storage.GroupName, "CSIDriver", "", r.Driver)))
	if driver == nil || !slices.Contains(driver.Spec.VolumeLifecycleModes, storage.VolumeLifecycleEphemeral) {
		return false
	}
	return slices.ContainsFunc(kube.Cached(r.storageNodes.List), func(n *v1beta1.StorageNode) bool {
		return !v1beta1.IsSite(n.Name) && mayHaveInline(n)
	})
}

// setEphemeralNotAllowed reports that pods use inline volumes that are not allowed, and how to allow them.
func (s *situation) setEphemeralNotAllowed(next *v1beta1.StorageClusterStatus) {
	count, on := 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(s.storageNodes)) {
		if n := s.storageNodes[name]; hasInline(n) {
			count += int(*n.Status.InlineVolumes)
			on = append(on, name)
		}
	}
	if count == 0 || s.cluster.Spec.CSI.Ephemeral != nil {
		meta.RemoveStatusCondition(&next.Conditions, v1beta1.EphemeralNotAllowedCondition)
		return
	}
	s.set(next, kube.NewCondition(v1beta1.EphemeralNotAllowedCondition, true, reasonInlineInUse, fmt.Sprintf(
		"pods have %d inline ephemeral volumes, which spec.csi.ephemeral does not allow: they stay until their pods end, and the next pods get none. To allow them: kubectl patch storageclusters.holdfast.dev %s --type=merge -p "+
			`'{"spec":{"csi":{"ephemeral":{"pools":[%q],"maxSize":"10Gi"}}}}'. They are on %s`,
		count, s.cluster.Name, render.Pools(s.cluster)[0].Name, strings.Join(on, ", "))))
}

// inlineEvent reports once that there are such volumes; their number changes all the time.
func inlineEvent(old, next *v1beta1.StorageClusterStatus) []event {
	c := meta.FindStatusCondition(next.Conditions, v1beta1.EphemeralNotAllowedCondition)
	if c == nil || meta.FindStatusCondition(old.Conditions, v1beta1.EphemeralNotAllowedCondition) != nil {
		return nil
	}
	return []event{{core.EventTypeWarning, v1beta1.EphemeralNotAllowedCondition, c.Message}}
}
