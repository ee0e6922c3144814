package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// hostFS is the common part of the attachments whose file systems are those of this host. As it is, the volume is on its devices.
type hostFS struct {
	n       *node
	v       *backend.Volume
	devices uses
	grown   bool // the file system is as large as the volume
}

func (h hostFS) is(m *nodeops.Mount) bool {
	device := nodeops.AttachedNode(m)
	if h.v.Mode != backend.Block {
		if m.Root != "/" {
			return false
		}
		device = nodeops.AttachedUnder(m)
	}
	_, is := h.devices[device]
	return is
}

func (h hostFS) verify(m *nodeops.Mount, staging string) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: volume %s is not mounted at %s: delete the pods that use it on this node", backend.ErrPrecondition, h.v.ID, staging)
	case h.v.Mode == backend.Block:
		return h.keep(nodeops.AttachedNode(m))
	}
	return nil
}

// mountDevice mounts the file system on a device of the volume, completely or not at all.
func (h hostFS) mountDevice(ctx context.Context, a access, device, target string) error {
	defer backend.Step(h.n.Log, h.v.ID, "mount")()
	crashpoint.Here(crashpoint.StageAttached)
	small, err := h.prepare(ctx, a, device)
	if err != nil {
		return err
	}
	if err := nodeops.MountFS(ctx, device, target, h.v.FSType, a.mountOptions()); err != nil {
		return fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, h.v.ID, err)
	}
	crashpoint.Here(crashpoint.StageMounted)
	if a.readOnly() || h.grown {
		return nil
	}
	err = nodeops.GrowMounted(ctx, device, target, h.n.Patience)
	if m, _ := nodeops.MountAt(target); err == nil && m != nil && m.ReadOnly {
		err = errors.New("its file system had an error, and is read-only: see the kernel's log")
	}
	if err != nil {
		h.n.stayedSmall(h.v, cmp.Or(small, err))
	}
	return nil
}

// prepare mends and grows what is to be mounted for writing, as far as that needs to be done before. For readers it stays
// as it is, but for what the kernel replays of its log. small says why it could not be grown.
func (h hostFS) prepare(ctx context.Context, a access, device string) (small, err error) {
	if a.readOnly() {
		return nil, nil
	}
	err = nodeops.Preen(ctx, device, h.v.FSType)
	switch {
	case errors.Is(err, nodeops.ErrDamaged):
		h.n.observe(h.v, backend.FileSystemErrors, err.Error())
		return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, h.v.ID, err)
	case err != nil:
		return nil, fmt.Errorf("volume %s: %w", h.v.ID, err)
	case h.v.FSSize == h.v.Size:
		return nil, nil
	}
	return nodeops.GrowUnmounted(ctx, device, h.v.FSType), ctx.Err()
}

// complete grows what was mounted by an attempt that was cut short.
func (h hostFS) complete(ctx context.Context, a access, m *nodeops.Mount) error {
	if a.readOnly() && h.v.Mode != backend.Block {
		return nil
	}
	if err := h.grow(ctx, m); err != nil && ctx.Err() == nil {
		h.n.stayedSmall(h.v, err)
	}
	return ctx.Err()
}

func (hostFS) record(context.Context, *nodeops.Mount) error { return nil }

// grow grows the file system through a mount that is writable, since the given one may be a read-only bind.
func (h hostFS) grow(ctx context.Context, m *nodeops.Mount) error {
	switch {
	case h.v.Mode == backend.Block:
		return nodeops.GrowAttached(ctx, nodeops.AttachedNode(m), h.n.Patience)
	case h.grown:
		return nil
	}
	device := nodeops.AttachedUnder(m)
	mounts, err := nodeops.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if !m.ReadOnly && h.is(&m) {
			return nodeops.GrowMounted(ctx, device, m.Target, h.n.Patience)
		}
	}
	return fmt.Errorf("%w: volume %s is mounted read-only: its file system grows for the next pod that may write", backend.ErrPrecondition, h.v.ID)
}

func (hostFS) setGroup(ctx context.Context, m *nodeops.Mount, group int) error {
	return nodeops.SetGroup(ctx, m.Target, group)
}

func (hostFS) bind(ctx context.Context, staged *nodeops.Mount, target string, readOnly bool, options []string) error {
	return nodeops.Bind(ctx, staged.Target, target, readOnly, options)
}

func (h hostFS) stats(ctx context.Context, m *nodeops.Mount) ([]*csi.VolumeUsage, backend.Condition, error) {
	condition := h.condition(ctx, m)
	if h.v.Mode == backend.Block {
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: h.v.Size}}, condition, nil
	}
	usage, err := nodeops.Statfs(ctx, m.Target)
	return volumeUsage(h.v, usage), condition, err
}

// condition is what the backend knows of a volume, and what its file system says where it is mounted.
func (h hostFS) condition(ctx context.Context, m *nodeops.Mount) backend.Condition {
	if h.v.Condition.Abnormal {
		return h.v.Condition
	}
	var is nodeops.Health
	if h.v.Mode == backend.Block {
		is.Device = nodeops.IOErrors(nodeops.AttachedNode(m))
	} else {
		is = nodeops.FSHealth(ctx, m)
	}
	switch {
	case is.Errors != "":
		return backend.Condition{Abnormal: true, Reason: backend.FileSystemErrors, Message: is.Errors}
	case is.Device != "":
		return backend.Condition{Abnormal: true, Reason: backend.DeviceErrors, Message: is.Device}
	}
	return h.v.Condition
}
