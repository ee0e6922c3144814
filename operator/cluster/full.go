package cluster

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// setPoolsFull reports the pools in which no further volume fits. What they have is served, so the StorageCluster stays Ready.
func (s *situation) setPoolsFull(next *v1beta1.StorageClusterStatus) {
	var full []string
	for _, name := range slices.Sorted(maps.Keys(s.storageNodes)) {
		for _, p := range s.storageNodes[name].Status.Pools {
			if p.Message == "" && !hasRoom(&p) {
				full = append(full, fmt.Sprintf("pool %s of %s, where %s of %s are promised", p.Name, v1beta1.SiteOf(name), v1beta1.Readable(&p.Promised), v1beta1.Readable(&p.Capacity)))
			}
		}
	}
	if len(full) == 0 {
		meta.RemoveStatusCondition(&next.Conditions, v1beta1.PoolsFullCondition)
		return
	}
	s.set(next, kube.NewCondition(v1beta1.PoolsFullCondition, true, reasonNoRoom,
		"no further volume fits, until volumes or snapshots are deleted, a disk is added or overcommit is raised (an NFS server may also be at its limit of exports): "+kube.Few(full, mostNamed, "; ", "; and %d more pools")))
}
