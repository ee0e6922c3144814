package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// running returns the spec that the node pods run; nil if there are none.
func (r *Controller) running() *render.Carried { return held.Running(r.Owned, r.Namespace) }

// unreachable returns the existing volumes that no pod can use, sorted by name.
func unreachable(volumes []*v1beta1.Volume) (all []*v1beta1.Volume) {
	for _, v := range volumes {
		if outOfReach(v) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *v1beta1.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func outOfReach(v *v1beta1.Volume) bool {
	return v.Status.Phase == v1beta1.PhaseUnreachable || v.Status.Phase == v1beta1.PhaseLost
}

// notReached says how many volumes are out of reach, and names the first.
func (s *situation) notReached() string {
	var named []string
	for _, v := range s.unreachable {
		named = append(named, fmt.Sprintf("%s (%s, node %s)", v.Name, v.Status.Phase, v.Spec.Node))
	}
	return fmt.Sprintf("%s out of reach: %s; kubectl describe volumes.holdfast.dev NAME, or holdfast status, says why",
		kube.Count(len(s.unreachable), "volume"), kube.Few(named, mostNamed, ", ", ", and %d more"))
}

// volumeMatters ignores changes that do not affect the status.
func volumeMatters(old, now any) bool {
	a, b := old.(*v1beta1.Volume), now.(*v1beta1.Volume)
	return a.UID != b.UID || a.PoolName() != b.PoolName() || outOfReach(a) != outOfReach(b) || outOfReach(a) && a.Status.Phase != b.Status.Phase
}

// snapshotMatters ignores changes that do not affect the status.
func snapshotMatters(old, now any) bool {
	a, b := old.(*v1beta1.Snapshot), now.(*v1beta1.Snapshot)
	return a.UID != b.UID || a.Status.Pool != b.Status.Pool || (a.Status.Phase == v1beta1.PhaseLost) != (b.Status.Phase == v1beta1.PhaseLost)
}
