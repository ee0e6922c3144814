package export

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

func (b *Backend) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.make(ctx, spec, func(ctx context.Context) (*backend.Volume, error) {
		return b.Storage.Create(ctx, b.growable(spec))
	})
}

// growable makes an image xfs if the caller leaves the choice and it is large enough: the kernel does not let a process
// without CAP_SYS_RESOURCE, such as an NFS server, grow a mounted ext4.
func (b *Backend) growable(spec backend.VolumeSpec) backend.VolumeSpec {
	smallest, err := nodeops.SmallestFS("xfs")
	if b.Images && spec.FSType == "" && len(spec.MkfsOptions) == 0 && spec.Inodes == 0 && err == nil && spec.Size.Required >= smallest {
		spec.FSType = "xfs"
	}
	return spec
}

func (b *Backend) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.make(ctx, spec, func(ctx context.Context) (*backend.Volume, error) {
		if from, err := b.Storage.Get(ctx, source); err == nil && from.Mode == backend.Block {
			return nil, fmt.Errorf("%w: the source: %w", backend.ErrInvalid, exportable(from))
		}
		return b.Storage.Clone(ctx, source, spec)
	})
}

func (b *Backend) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return b.make(ctx, spec, func(ctx context.Context) (*backend.Volume, error) {
		if from, err := b.GetSnapshot(ctx, snapshot); err == nil && from.Mode == backend.Block {
			return nil, fmt.Errorf("%w: the source: %w", backend.ErrInvalid, exportable(&backend.Volume{Mode: from.Mode}))
		}
		return b.Storage.Restore(ctx, snapshot, spec)
	})
}

// make creates a volume and serves it.
func (b *Backend) make(ctx context.Context, spec backend.VolumeSpec, build func(context.Context) (*backend.Volume, error)) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	if spec.Mode == backend.Block {
		return nil, fmt.Errorf("volume %s: %w", id, exportable(&backend.Volume{Mode: spec.Mode}))
	}
	if spec.Incomplete {
		return nil, fmt.Errorf("%w: volume %s: an NFS server makes no volume from the content of another pool", backend.ErrInvalid, id)
	}
	if _, _, err := b.settings(spec.Labels); err != nil {
		return nil, fmt.Errorf("volume %s: %w", id, err)
	}
	return backend.Do(ctx, &b.ops, id, "create", func(ctx context.Context) (*backend.Volume, error) {
		fresh, release, err := b.prepare(ctx, id)
		if err != nil {
			return nil, err
		}
		defer release()
		v, err := build(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.serve(ctx, v); err != nil {
			err = fmt.Errorf("volume %s: %w", id, err)
			if fresh && errors.Is(err, backend.ErrExhausted) {
				return nil, errors.Join(err, b.remove(ctx, id)) // so that it uses no space once another server has the volume
			}
			return nil, err
		}
		return b.showGrown(v, spec.Size)
	})
}

// prepare reserves an export for a volume under creation, until release. fresh means that the volume does not exist
// yet; then what is left of an earlier volume of the same name is removed.
func (b *Backend) prepare(ctx context.Context, id backend.ID) (fresh bool, release func(), err error) {
	if fresh, err = b.gone(ctx, id); err != nil {
		return false, nil, err
	}
	if release, err = b.ledger.reserve(id); err != nil {
		return false, nil, err
	}
	if fresh {
		if err := b.unexportGone(ctx, id); err != nil {
			release()
			return false, nil, fmt.Errorf("volume %s: %w", id, err)
		}
	}
	return fresh, release, nil
}

// showGrown fails if the volume's file system has not grown to the requested size.
func (b *Backend) showGrown(v *backend.Volume, size backend.Size) (*backend.Volume, error) {
	shown := b.show(v)
	if shown.Size < size.Required {
		return nil, b.state(v.ID).fault
	}
	return shown, nil
}

// Delete ends the export first, so that no client sees a volume that is being deleted.
func (b *Backend) Delete(ctx context.Context, id backend.ID) error {
	if _, err := backend.ParseID(string(id)); err != nil {
		return err
	}
	return backend.Run(ctx, &b.ops, id, "delete", func(ctx context.Context) error {
		return b.remove(ctx, id)
	})
}

func (b *Backend) remove(ctx context.Context, id backend.ID) error {
	err := b.destroy(ctx, id)
	if err != nil {
		b.setState(id, &exportState{leaving: true, fault: fmt.Errorf("%w: its deletion has started, but not finished; request it again: %w", backend.ErrPrecondition, err)})
		return err
	}
	b.setState(id, nil)
	return nil
}

func (b *Backend) destroy(ctx context.Context, id backend.ID) error {
	if _, err := b.Storage.Get(ctx, id); errors.Is(err, backend.ErrNotFound) && !backend.IsAbsent(err) {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) // its clients keep it until its pool is back
	}
	if err := b.unexport(ctx, id); err != nil {
		return err
	}
	v, err := b.Storage.Get(ctx, id)
	if err == nil {
		err = awaitClosed(ctx, v)
	}
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return err
	}
	if err := b.Storage.Delete(ctx, id); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.ExportEmptied)
	return b.ledger.retire(id)
}

// unexport ends the export of a volume and unmounts it.
func (b *Backend) unexport(ctx context.Context, id backend.ID) error {
	if known, ok := b.ledger.find(id); ok {
		if err := b.endExport(ctx, known.ID); err != nil {
			return explain(fmt.Errorf("ending export %d of volume %s: %w", known.ID, id, err))
		}
	}
	b.setState(id, &exportState{leaving: true, fault: fmt.Errorf("%w: it is being deleted", backend.ErrPrecondition)})
	crashpoint.Here(crashpoint.ExportRemoved)
	if err := b.unmount(ctx, id); err != nil {
		return explain(err)
	}
	crashpoint.Here(crashpoint.ExportUnmounted)
	return nil
}

// unexportGone unexports what is left of a volume that no longer exists.
func (b *Backend) unexportGone(ctx context.Context, id backend.ID) error {
	if _, known := b.ledger.find(id); !known {
		return nil
	}
	if err := b.unexport(ctx, id); err != nil {
		return err
	}
	b.setState(id, nil)
	return b.ledger.retire(id)
}

func (b *Backend) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	v, err := b.Storage.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return b.show(v), nil
}

func (b *Backend) List(ctx context.Context) ([]*backend.Volume, error) {
	all, err := b.Storage.List(ctx)
	if err != nil {
		return nil, err
	}
	for i, v := range all {
		all[i] = b.show(v)
	}
	return all, nil
}

// show returns a volume as its clients see it.
func (b *Backend) show(v *backend.Volume) *backend.Volume {
	shown, s := *v, b.state(v.ID)
	shown.Access = backend.Access{NFS: s.nfs}
	if s.fault != nil {
		message := s.fault.Error()
		if v.Condition.Abnormal && !strings.Contains(message, v.Condition.Message) {
			message = v.Condition.Message + "; " + message
		}
		shown.Condition.Abnormal, shown.Condition.Message = true, message
		if s.size > 0 {
			shown.Size = min(v.Size, s.size) // no client can use more than the file system
		}
	}
	return &shown
}

// Capacity is that of the wrapped backend; nothing is available if no more volumes can be exported.
func (b *Backend) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	c, err := b.Storage.Capacity(ctx, pool)
	if err == nil && b.ledger.isFull() {
		c.Available, c.Largest = 0, 0
	}
	return c, err
}

// Expand grows the volume and its mounted file system.
func (b *Backend) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return backend.Do(ctx, &b.ops, id, "expand", func(ctx context.Context) (*backend.Volume, error) {
		v, err := b.Storage.Expand(ctx, id, size)
		if err != nil {
			return nil, err
		}
		if err := b.serve(ctx, v); err != nil {
			return nil, fmt.Errorf("volume %s: %w", id, err)
		}
		if fault := b.state(id).fault; fault != nil {
			return nil, fault
		}
		return b.show(v), nil
	})
}
