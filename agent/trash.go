package agent

import (
	"context"
	"slices"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// trashStatus lists the deleted volumes that can be restored. For a pool that is out of reach the last reported ones
// are kept.
func (a *Agent) trashStatus(ctx context.Context, pools []v1beta1.Pool, reported *v1beta1.StorageNodeStatus) []v1beta1.TrashedVolume {
	out := func(pool string) bool {
		return slices.ContainsFunc(pools, func(p v1beta1.Pool) bool { return p.Name == pool && p.Message != "" })
	}
	found, err := a.Backend.Trash(ctx)
	if err != nil {
		a.log.Warn("the trash cannot be listed", "error", err)
		return reported.Trash
	}
	var all []v1beta1.TrashedVolume
	for _, t := range found {
		foreign := a.Foreign != nil && a.Foreign(&backend.Volume{ID: t.ID, Labels: t.Labels})
		if !foreign && !out(t.Pool) {
			all = append(all, convert.FromTrashed(t))
		}
	}
	for _, t := range reported.Trash {
		if out(t.Pool) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(x, y v1beta1.TrashedVolume) int { return y.DeletionTime.Compare(x.DeletionTime.Time) })
	return all[:min(len(all), v1beta1.MostTrash)]
}
