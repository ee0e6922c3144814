package agent

import (
	"context"
	"slices"

	"github.com/holdfast-storage/holdfast/api/convert"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// mostTrash is how many deleted volumes are published.
const mostTrash = 100

// trashStatus lists the deleted volumes that can be restored. Of a pool that is out of reach those are kept that were
// told last.
func (a *Agent) trashStatus(ctx context.Context, pools []v1.Pool, told *v1.StorageNodeStatus) []v1.TrashedVolume {
	if a.trasher == nil {
		return nil
	}
	out := func(pool string) bool {
		return slices.ContainsFunc(pools, func(p v1.Pool) bool { return p.Name == pool && p.Message != "" })
	}
	found, err := a.trasher.Trash(ctx)
	if err != nil {
		a.log.Warn("the trash cannot be listed", "error", err)
		if told != nil {
			return told.Trash
		}
		return nil
	}
	var all []v1.TrashedVolume
	for _, t := range found {
		foreign := a.Foreign != nil && a.Foreign(&backend.Volume{ID: t.ID, Labels: t.Labels})
		if !foreign && !out(t.Pool) {
			all = append(all, convert.FromTrashed(t))
		}
	}
	if told != nil {
		for _, t := range told.Trash {
			if out(t.Pool) {
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y v1.TrashedVolume) int { return y.Deleted.Compare(x.Deleted.Time) })
	return all[:min(len(all), mostTrash)]
}
