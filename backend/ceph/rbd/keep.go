//go:build ceph

package rbd

import (
	"context"
	"time"

	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
)

const (
	// keepEvery is how often what has expired, and what could not be removed before, is removed.
	keepEvery = 10 * time.Second
	// An image that needs more than shallow others is flattened in the background, since each slows reading down; one that
	// needs more than deepest, at once. The kernel maps no image that needs more than 16.
	shallow, deepest = 4, 12
	// mostFlattened bounds the images that wait to be flattened. What is not among them is found at the next start.
	mostFlattened = 1024
)

// keep looks after the pool while this process has it.
func (b *Backend) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-b.flatten:
			if err := b.flattenImage(ctx, name); err != nil {
				b.log.Warn("an image stays one of many layers until it is copied again, or the pool is opened", "image", name, "error", err)
			}
		case now := <-tick.C:
			if b.current.Load() == nil {
				continue // the next call takes the pool
			}
			if err := b.emptyTrash(ctx, now); err != nil {
				b.log.Warn("the trash cannot be emptied; retrying", "error", err)
			}
		}
	}
}

// emptyTrash removes what has expired, and what copies have kept. One image that cannot be removed keeps no other.
func (b *Backend) emptyTrash(ctx context.Context, now time.Time) error {
	type image struct{ id, name string }
	due, err := call(ctx, b, "looking for what has expired", func(s *session) (due []image, err error) {
		list, err := s.trash()
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			keeps := max(0, b.TrashRetention)
			if t.State == aborted {
				keeps = abortedFor
			}
			if t.unlisted == nil && (t.State == removing || b.deleted.Ripe(t.Id, t.Deleted, now, keeps)) {
				due = append(due, image{t.Id, t.Name})
			}
		}
		return due, nil
	})
	for _, i := range due {
		if ctx.Err() != nil {
			break
		}
		if err := b.purge(ctx, i.id, i.name); err != nil {
			b.log.Warn("a deleted image cannot be removed; retrying", "image", i.name, "id", i.id, "error", err)
			continue
		}
		b.deleted.Forget(i.id)
		if err := b.release(ctx, i.id, i.name); err != nil {
			b.log.Warn("copies of a deleted image cannot be given content of their own; retrying", "image", i.name, "id", i.id, "error", err)
		}
	}
	return err
}

// release gives the copies of an image that is to be removed content of their own, and removes it.
func (b *Backend) release(ctx context.Context, id, name string) error {
	copies, err := call(ctx, b, "looking for copies of "+name, func(s *session) (copies []rbd.ImageSpec, err error) {
		err = s.withID(id, func(image *rbd.Image) error {
			copies, err = image.ListChildrenAttributes()
			return err
		})
		if absent(err) {
			return nil, nil
		}
		return copies, err
	})
	if err != nil || len(copies) == 0 {
		return err
	}
	for _, c := range copies {
		flatten := func(ctx context.Context) (any, error) {
			return call(ctx, b, "flattening image "+c.ImageName, func(s *session) (any, error) {
				err := s.withID(c.ImageID, (*rbd.Image).Flatten)
				if absent(err) {
					err = nil
				}
				return nil, err
			})
		}
		key := backend.ID("trash/" + c.ImageID)
		if !c.Trash {
			key = keyOf(c.ImageName)
		}
		if _, err := do(ctx, b, key, "flatten", flatten); err != nil {
			return err
		}
	}
	return b.purge(ctx, id, name)
}

// keyOf is that of operations on an image.
func keyOf(name string) backend.ID {
	k, id, ours := parseName(name)
	switch {
	case !ours:
		return backend.ID("image/" + name)
	case k == snapshots:
		return snapshotKey(id)
	}
	return id
}

// flattenImage gives an image content of its own, if it is still one that needs too many others.
func (b *Backend) flattenImage(ctx context.Context, name string) error {
	_, err := do(ctx, b, keyOf(name), "flatten", func(ctx context.Context) (any, error) {
		return call(ctx, b, "flattening image "+name, func(s *session) (any, error) {
			n, err := s.depth(name)
			if err == nil && n > shallow {
				err = s.with(name, (*rbd.Image).Flatten)
			}
			if absent(err) {
				err = nil
			}
			return nil, err
		})
	})
	return err
}

// examineDepth has an image flattened, later, that needs too many others.
func (b *Backend) examineDepth(ctx context.Context, name string) {
	n, err := call(ctx, b, "measuring the layers of "+name, func(s *session) (int, error) { return s.depth(name) })
	if err == nil && n > shallow {
		b.flattenLater(name)
	}
}

func (b *Backend) flattenLater(name string) {
	select {
	case b.flatten <- name:
	default:
	}
}

// limitDepth flattens a new image at once where it needs so many others that it could soon not be mapped.
func (s *session) limitDepth(name string) error {
	n, err := s.depth(name)
	if err != nil || n <= deepest {
		return err
	}
	return s.with(name, (*rbd.Image).Flatten)
}
