package backend

import (
	"context"
	"fmt"
	"time"
)

// Trasher is implemented by backends that keep deleted volumes for a retention time. The oldest are removed earlier if
// a new volume needs their space.
type Trasher interface {
	// Trash lists the deleted volumes that can be restored, the last deleted first.
	Trash(ctx context.Context) ([]Trashed, error)
	// Undelete restores the last deleted volume of an ID with its content. It fails with ErrExists if a volume has that
	// ID, and with ErrNotFound if the trash has none.
	Undelete(ctx context.Context, id ID) (*Volume, error)
}

// NoTrash is the retention time of a pool that removes deleted volumes at once. Users write it as 0s.
const NoTrash time.Duration = -1

// TrashRetention converts a trashRetention of a user, in which 0 means no trash.
func TrashRetention(said time.Duration) time.Duration {
	if said == 0 {
		return NoTrash
	}
	return said
}

// ParseTrashRetention parses that of a pool's description. duration parses a duration.
func ParseTrashRetention(value string, duration func(string) (time.Duration, error)) (time.Duration, error) {
	retention, err := duration(value)
	if err != nil || retention < 0 {
		return 0, fmt.Errorf("trashRetention %s is not a time such as 24h or 7d, or 0s to keep nothing", Quote(value))
	}
	return TrashRetention(retention), nil
}

// Trashed is a deleted volume that can be restored.
type Trashed struct {
	ID      ID
	Name    string
	Pool    string
	Size    int64
	Labels  map[string]string
	Deleted time.Time
	Expires time.Time // earlier if its space is needed

	Incomplete bool // it was deleted before another had brought all of its content
}
