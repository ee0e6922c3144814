//go:build ceph

package rbd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Snapshots have names of their own, which may equal those of volumes: their operations use other keys.
func snapshotKey(id backend.ID) backend.ID { return "snapshot/" + id }

// do runs an operation on one ID.
func do[T any](ctx context.Context, b *Backend, id backend.ID, verb string, f func(context.Context) (T, error)) (T, error) {
	return ceph.Do(ctx, b.cluster, &b.ops, id, verb, f)
}

func (b *Backend) create(ctx context.Context, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return do(ctx, b, id, "create", func(ctx context.Context) (*backend.Volume, error) {
		r, err := b.clear(ctx, imageName(volumes, id))
		if err := cmp.Or(err, r.check()); err != nil {
			return nil, err
		}
		if r != nil {
			v := b.volume(r)
			return v, v.Satisfies(spec, source)
		}
		if err := b.accepts(spec); err != nil {
			return nil, err
		}
		if source == nil {
			return b.build(ctx, id, spec, nil, nil)
		}
		k, key := volumes, source.ID
		if source.Kind == backend.SourceSnapshot {
			k, key = snapshots, snapshotKey(source.ID)
		}
		if key == id {
			return nil, fmt.Errorf("%w: %s, the source of %s", backend.ErrNotFound, source, id)
		}
		of := ", the source of " + string(id)
		if _, err := b.need(ctx, k, source.ID, of); err != nil {
			return nil, err // before its ID is waited for: what is not there may be waiting for this one
		}
		return do(ctx, b, key, "copy for "+string(id), func(ctx context.Context) (*backend.Volume, error) {
			from, err := b.need(ctx, k, source.ID, of)
			if err != nil {
				return nil, err
			}
			return b.build(ctx, id, spec, source, from)
		})
	})
}

// need finds what must be there; of says for what.
func (b *Backend) need(ctx context.Context, k kind, id backend.ID, of string) (*record, error) {
	if _, err := backend.ParseID(string(id)); err != nil {
		return nil, fmt.Errorf("%w: %s %s%s", backend.ErrNotFound, k, backend.Quote(string(id)), of)
	}
	r, err := b.find(ctx, k, id)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, fmt.Errorf("%w: %s %s%s in pool %s", backend.ErrNotFound, k, id, of, b.Name)
	case r.meta == nil:
		return nil, r.check()
	case of != "" && r.meta.Incomplete:
		return nil, backend.LacksContent(id)
	}
	return r, nil
}

// accepts refuses what no image can be.
func (b *Backend) accepts(spec backend.VolumeSpec) error {
	switch {
	case spec.Pool != "" && spec.Pool != b.Name:
		return fmt.Errorf("%w: pool %s; the pools are: %s", backend.ErrInvalid, backend.Quote(spec.Pool), b.Name)
	case spec.Shared:
		return fmt.Errorf("%w: volume %s: an image is used by one node at a time; use a class of a file system", backend.ErrInvalid, backend.Quote(spec.Name))
	case spec.Provisioning == backend.Thick:
		return fmt.Errorf("%w: volume %s: images are provisioning=%s only", backend.ErrInvalid, backend.Quote(spec.Name), backend.Thin)
	case spec.Mode != "" && spec.Mode != backend.Filesystem && spec.Mode != backend.Block:
		return fmt.Errorf("%w mode %s: it must be %s or %s", backend.ErrInvalid, backend.Quote(string(spec.Mode)), backend.Filesystem, backend.Block)
	case spec.Mode == backend.Block && (spec.FSType != "" || len(spec.MkfsOptions) > 0 || spec.Inodes > 0):
		return fmt.Errorf("%w: volume %s has mode %s, for which no file system is made; leave out its file system", backend.ErrInvalid, backend.Quote(spec.Name), backend.Block)
	}
	switch spec.FSType {
	case "", "ext4", "xfs", "btrfs":
		return nil
	}
	return fmt.Errorf("%w file system %s: it must be ext4, xfs or btrfs", backend.ErrInvalid, backend.Quote(spec.FSType))
}

// plan decides what a volume will be.
func (b *Backend) plan(id backend.ID, spec backend.VolumeSpec, source *backend.Source, from *record) (*meta, error) {
	m := &meta{
		Version: version, Kind: volumes, ID: id, Name: spec.Name, Created: time.Now().UTC(), Mode: spec.Mode, FSType: spec.FSType,
		Provisioning: backend.Thin, MkfsOptions: spec.MkfsOptions, Inodes: spec.Inodes, Labels: maps.Clone(spec.Labels),
		OnNodeLoss: spec.OnNodeLoss, Source: source, Ephemeral: spec.Ephemeral, Incomplete: spec.Incomplete,
	}
	smallest := int64(backend.SizeUnit)
	if from != nil {
		f := from.meta
		smallest = f.Size
		m.Mode, m.FSType = cmp.Or(m.Mode, f.Mode), cmp.Or(m.FSType, f.FSType)
		if m.Mode != f.Mode || m.FSType != f.FSType {
			return nil, fmt.Errorf("%w: volume %s is to be a copy of %s, which has mode %s and file system %q, and cannot have another", backend.ErrInvalid, id, source, f.Mode, f.FSType)
		}
		if spec.Size.Required == 0 {
			spec.Size.Required = smallest // a copy is as large as its source
		}
	}
	m.Mode = cmp.Or(m.Mode, backend.Filesystem)
	var err error
	if m.Mode == backend.Filesystem {
		m.FSType = cmp.Or(m.FSType, "ext4")
	}
	if m.Mode == backend.Filesystem && from == nil {
		if err = nodeops.CheckMkfs(mkfs(m)); err != nil {
			return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrInvalid, id, err)
		}
		if smallest, err = nodeops.SmallestFS(m.FSType); err != nil {
			return nil, err
		}
	}
	if m.Size, err = spec.Size.Choose(smallest, backend.SizeUnit); err != nil {
		return nil, fmt.Errorf("volume %s in pool %s: %w", id, b.Name, err)
	}
	if m.Mode == backend.Filesystem {
		m.FSSize = m.Size
		if from != nil {
			m.FSSize = from.meta.FSSize
		}
	}
	return m, nil
}

func (b *Backend) build(ctx context.Context, id backend.ID, spec backend.VolumeSpec, source *backend.Source, from *record) (*backend.Volume, error) {
	m, err := b.plan(id, spec, source, from)
	if err != nil {
		return nil, err
	}
	r, err := b.make(ctx, m, from, func(s *session) error {
		if from == nil {
			if err := s.createImage(m.imageName(), m.Size); err != nil || m.Mode == backend.Block {
				return err
			}
			return b.format(ctx, s, m)
		}
		if err := s.copy(m.imageName(), from); err != nil {
			return err
		}
		return s.with(m.imageName(), func(image *rbd.Image) error { return grow(image, m.Size) })
	})
	if err != nil {
		return nil, err
	}
	return b.volume(r), nil
}

func mkfs(m *meta) nodeops.MkfsSpec {
	return nodeops.MkfsSpec{FSType: m.FSType, Options: m.MkfsOptions, Inodes: m.Inodes}
}

// format makes the file system of a new volume, once there is room for it: its size says how much memory that takes. Nodes make
// none: where there is none any more, it was lost.
func (b *Backend) format(ctx context.Context, s *session, m *meta) error {
	b.formatting.Lock() // the memory of one at a time
	defer b.formatting.Unlock()
	content, err := nodeops.NewFSContent(ctx, m.Size, mkfs(m))
	if errors.Is(err, nodeops.ErrMkfsRefused) {
		err = fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	if err != nil {
		return fmt.Errorf("volume %s in pool %s: %w", m.ID, b.Name, err)
	}
	defer content.Close()
	r, err := s.look(volumes, m.ID)
	if err == nil && r == nil {
		err = fmt.Errorf("%w: image %s is not there", backend.ErrUnavailable, m.imageName())
	}
	if err != nil {
		return err
	}
	return s.writeContent(ctx, r, content)
}

// grow makes an image at least that large.
func grow(image *rbd.Image, size int64) error {
	is, err := image.GetSize()
	if err != nil || int64(is) >= size {
		return err
	}
	return image.Resize(uint64(size))
}

// make promises the room of an image, has it filled, and says in its metadata that it is complete. Its name was cleared.
func (b *Backend) make(ctx context.Context, m *meta, from *record, fill func(*session) error) (*record, error) {
	name := m.imageName()
	p := &promise{Charge: m.Size, State: building}
	if from != nil {
		p.Source = from.name
	}
	if err := b.promise(ctx, name, p); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.ImagePromised)
	r, err := call(ctx, b, "making image "+name, func(s *session) (*record, error) {
		if err := fill(s); err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.ImageFilled)
		if err := s.writeMeta(m); err != nil {
			return nil, err
		}
		crashpoint.Here(crashpoint.ImageReady)
		p.State = complete
		if err := s.ledger.change(map[string]*promise{name: p}, nil); err != nil {
			return nil, err
		}
		return &record{name: name, image: m.Image, kind: m.Kind, id: m.ID, size: m.Size, meta: m}, nil
	})
	if err != nil {
		// What was requested last may still have been done. A repeat, or the next start, removes what is not complete.
		if _, cleared := b.clear(ctx, name); cleared != nil {
			b.log.Warn("an image that could not be completed stays until it is requested again, or the pool is opened", "image", name, "error", cleared)
		}
		return nil, err
	}
	if from != nil {
		b.examineDepth(ctx, name)
	}
	return r, nil
}

// copy makes an image that shares the content of from.
func (s *session) copy(name string, from *record) error {
	if from.kind == snapshots {
		if err := s.cloneImage(from.name, contentSnapshot, name); err != nil {
			return err
		}
		return s.limitDepth(name)
	}
	if err := s.with(from.name, func(image *rbd.Image) error { return snap(image, temporaryPrefix+name) }); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.ImageSnapped)
	if err := s.cloneImage(from.name, temporaryPrefix+name, name); err != nil {
		return errors.Join(err, s.dropTemporary(from.name, name))
	}
	crashpoint.Here(crashpoint.ImageCloned)
	if err := s.dropTemporary(from.name, name); err != nil {
		return err
	}
	return s.limitDepth(name)
}

// clear makes way for an image, unless one of that name is complete or damaged, which it returns: what an earlier attempt left
// is removed. An image of that name that room was never promised to is another program's.
func (b *Backend) clear(ctx context.Context, name string) (*record, error) {
	return call(ctx, b, "clearing "+name, func(s *session) (*record, error) {
		entries, err := s.ledger.get(name)
		if err != nil {
			return nil, err
		}
		p, promised := entries[name]
		r, err := s.unname(name)
		if err != nil || r == nil && !promised {
			return nil, err
		}
		if r != nil && !errors.Is(r.damage, errIncomplete) {
			return r, s.completed(r, p)
		}
		if !promised {
			return nil, fmt.Errorf("%w: pool %s has an image %s that is not of Holdfast; rename it", backend.ErrExists, b.Name, name)
		}
		if p.State == complete {
			damage := errReplaced
			if r == nil {
				damage = errMissing
			}
			return nil, fmt.Errorf("%w: image %s: %w", backend.ErrPrecondition, name, damage)
		}
		return nil, s.discard(name, p)
	})
}

// completed records that an image is complete after all, since only what seemed to fail has made it.
func (s *session) completed(r *record, p promise) error {
	if p.State != building {
		return nil
	}
	p.State, p.Charge = complete, r.size
	return s.ledger.change(map[string]*promise{r.name: &p}, nil)
}

// abortedFor is how long what was not completed stays in the trash, for the case that it was something else.
const abortedFor = time.Hour

// discard moves an image that was not completed to the trash, and ends its promise.
func (s *session) discard(name string, p promise) error {
	if p.Source != "" {
		if err := s.dropTemporary(p.Source, name); err != nil {
			return err
		}
	}
	r, err := s.unname(name)
	if err == nil && r == nil {
		r, err = s.nameListed(name)
	}
	switch {
	case err != nil:
		return err
	case r == nil: // Ceph may have less than an image of that name
		if err := rbd.RemoveImage(s.ioctx, name); err != nil && !absent(err) {
			return err
		}
		return s.ledger.change(map[string]*promise{name: nil}, nil)
	case r.damage == nil:
		return fmt.Errorf("%w: image %s is complete, and is not discarded", backend.ErrUnavailable, name)
	}
	// The next process knows by that what it finds in the trash.
	if err := s.ledger.change(map[string]*promise{trashKey(r.image): {State: aborted, Deleted: time.Now().UTC()}}, nil); err != nil {
		return err
	}
	if err := s.moveToTrash(r, abortedFor); err != nil && !absent(err) {
		return err
	}
	return s.ledger.change(map[string]*promise{name: nil}, nil)
}

func (b *Backend) Expand(ctx context.Context, id backend.ID, wish backend.Size) (*backend.Volume, error) {
	return do(ctx, b, id, "expand", func(ctx context.Context) (*backend.Volume, error) {
		r, err := b.need(ctx, volumes, id, "")
		if err != nil {
			return nil, err
		}
		if wish.Required == 0 {
			wish.Required = r.meta.Size
		}
		size, err := wish.Choose(r.meta.Size, backend.SizeUnit)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", id, err)
		}
		if size == r.meta.Size {
			return b.volume(r), nil
		}
		if err := b.promise(ctx, r.name, &promise{Charge: size, State: complete}); err != nil {
			return nil, err
		}
		return call(ctx, b, "growing image "+r.name, func(s *session) (*backend.Volume, error) {
			if err := s.with(r.name, func(image *rbd.Image) error { return grow(image, size) }); err != nil {
				return nil, err
			}
			crashpoint.Here(crashpoint.ImageGrown)
			r.meta.Size, r.size = size, size
			if err := s.writeMeta(r.meta); err != nil {
				return nil, err
			}
			crashpoint.Here(crashpoint.ImageRecorded)
			return b.volume(r), nil
		})
	})
}

func (b *Backend) Complete(ctx context.Context, id backend.ID) error {
	_, err := do(ctx, b, id, "complete", func(ctx context.Context) (any, error) {
		r, err := b.need(ctx, volumes, id, "")
		if err != nil || !r.meta.Incomplete {
			return nil, err
		}
		return call(ctx, b, "recording that image "+r.name+" is complete", func(s *session) (any, error) {
			r.meta.Incomplete = false
			return nil, s.writeMeta(r.meta)
		})
	})
	return err
}
