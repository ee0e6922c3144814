package backend

import (
	"context"
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

// Trashed is a deleted volume that can be restored.
type Trashed struct {
	ID      ID
	Name    string
	Pool    string
	Size    int64
	Labels  map[string]string
	Deleted time.Time
	Expires time.Time // earlier if its space is needed
}
