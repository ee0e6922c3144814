package backendtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// mostTrash limits the number of deleted volumes that a Memory keeps. They do not count against its capacity.
const mostTrash = 1000

type trashedVolume struct {
	volume  *memoryVolume
	deleted time.Time
}

// throwAway moves a volume, if it exists, to the trash. m.mu must be held.
func (m *Memory) throwAway(id backend.ID) {
	v := m.volumes[id]
	if v == nil {
		return
	}
	delete(m.volumes, id)
	m.trash = append(m.trash, trashedVolume{v, time.Now()})
	m.trash = m.trash[max(0, len(m.trash)-mostTrash):]
}

func (m *Memory) Trash(context.Context) ([]backend.Trashed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []backend.Trashed
	for _, t := range slices.Backward(m.trash) {
		v := t.volume
		all = append(all, backend.Trashed{
			ID: v.ID, Name: v.Name, Pool: v.Pool, Size: v.Size, Labels: v.Labels, Deleted: t.deleted, Expires: t.deleted.Add(24 * time.Hour),
			Incomplete: v.Incomplete,
		})
	}
	return all, nil
}

func (m *Memory) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return locked(ctx, m, id, "undelete", func() (*backend.Volume, error) {
		if m.volumes[id] != nil {
			return nil, fmt.Errorf("%w: volume %s", backend.ErrExists, id)
		}
		for i, t := range slices.Backward(m.trash) {
			if t.volume.ID == id {
				m.trash = slices.Delete(m.trash, i, i+1)
				m.volumes[id] = t.volume
				return clone(&t.volume.Volume), nil
			}
		}
		return nil, fmt.Errorf("%w: volume %s is not in the trash", backend.ErrNotFound, id)
	})
}
