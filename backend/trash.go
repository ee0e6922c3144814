package backend

import (
	"context"
	"time"
)

// Trasher is implemented by backends that keep deleted volumes for a while. Deleted volumes are removed, the oldest
// first, when their space is requested.
type Trasher interface {
	// Trash lists the deleted volumes that can be restored, the last deleted first.
	Trash(ctx context.Context) ([]Trashed, error)
	// Undelete takes the last deleted volume of an ID out of the trash, with its content. It fails with ErrExists when
	// there is a volume of that ID, and with ErrNotFound when the trash has none.
	Undelete(ctx context.Context, id ID) (*Volume, error)
}

// Trashed is a deleted volume that can still be restored.
type Trashed struct {
	ID      ID
	Name    string
	Pool    string
	Size    int64
	Labels  map[string]string
	Deleted time.Time
	Expires time.Time // sooner where its room is needed
}
