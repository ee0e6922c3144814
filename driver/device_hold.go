package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// uses are devices that are attached for a volume. Each may be another volume's by now.
type uses map[string]use

// use is what a device showed for the volume: the file of a loop device, or an image of RBD.
type use struct {
	file nodeops.File
	rbd  *nodeops.RBDDevice
	ends bool // by itself with its last mount, or a moment later if a prober has it open
}

// release detaches those of a volume's devices whose node is not bound anywhere any more: the binds count the uses. A file
// system in a Ceph cluster that is still being written, since its cluster does not answer, keeps its device. One that ends by
// itself is waited for, so that the deletion of the volume at once finds it unused. One that stays has a user that this host does not
// see.
func (n *node) release(ctx context.Context, id backend.ID, devices uses) error {
	all, err := nodeops.Mounts()
	if err != nil {
		return err
	}
	for device, is := range devices {
		if slices.ContainsFunc(all, nodeops.MayUse(device)) {
			continue
		}
		if err := n.detach(ctx, id, device, is); err != nil && (!is.ends || !errors.Is(err, unix.EBUSY)) {
			return err
		}
	}
	return nil
}

func (n *node) detach(ctx context.Context, id backend.ID, device string, is use) error {
	if is.rbd == nil {
		return n.holds.detach(ctx, id, device, is.file)
	}
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	if err := nodeops.UnmapRBD(ctx, is.rbd); err != nil {
		return fmt.Errorf("%w: no pod uses volume %s on this node, but its device cannot be unmapped: a process has it open, or the Ceph cluster does not answer; the kubelet tries again: %w", backend.ErrUnavailable, id, err)
	}
	return nil
}

// holds keeps the devices of staged block volumes open. A process that has the node of a loop device may ask the kernel
// to detach it; if no other process had it open, the next volume would get the same device, and the old node would show
// that volume.
type holds struct {
	mu   sync.Mutex
	held map[string]held // by device
}

type held struct {
	loop *nodeops.Loop
	id   backend.ID
}

// hold makes sure that a device is held and attached to the whole image of the volume.
func (h *holds) hold(id backend.ID, device, image string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, ok := h.held[device]
	if ok && before.id == id && before.loop.Keep(image) == nil {
		return nil
	}
	l, err := nodeops.HoldLoop(device, image)
	if err != nil {
		return fmt.Errorf("%w: volume %s has lost its device on this node: delete its pods here, and the next ones get another: %w", backend.ErrPrecondition, id, err)
	}
	if ok {
		_ = before.loop.Close()
	}
	if h.held == nil {
		h.held = map[string]held{}
	}
	h.held[device] = held{l, id}
	return nil
}

// detach detaches a device from the file that it was attached to for a volume. A device that another process has open
// stays held, so that no other volume gets it until then.
func (h *holds) detach(ctx context.Context, id backend.ID, device string, file nodeops.File) error {
	h.mu.Lock()
	is, ok := h.held[device]
	ok = ok && is.id == id
	if ok {
		delete(h.held, device)
	}
	h.mu.Unlock()
	if !ok {
		return nodeops.DetachLoop(ctx, device, file)
	}
	err := is.loop.Detach(ctx)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held[device] = is
	}
	return err
}

// of adds the devices that are held for a volume, including those that an earlier attempt could not detach.
func (h *holds) of(id backend.ID, devices uses) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for device, is := range h.held {
		if _, known := devices[device]; is.id == id && !known {
			devices[device] = use{} // the hold knows
		}
	}
}

// close closes all devices, which stay attached for the next process.
func (h *holds) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for device, is := range h.held {
		if image, err := nodeops.BackingFile(device); err == nil {
			_ = is.loop.Keep(image) // otherwise it would be detached with its last user
		}
		_ = is.loop.Close()
	}
	h.held = nil
}

// holdStaged holds the devices that earlier processes have staged. Until the backend can say which volume a device is
// of, the path of its image decides: holding one too many does less harm.
func (d *Driver) holdStaged(ctx context.Context) error {
	mounts, err := d.mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		device := nodeops.LoopNode(&m)
		if device == "" || filepath.Base(m.Target) != deviceFile {
			continue
		}
		if err := d.holdAgain(ctx, device); err != nil {
			d.Log.Error("the device of a staged block volume is not held", "device", device, "staged", m.Target, "error", err)
		}
	}
	return nil
}

func (d *Driver) holdAgain(ctx context.Context, device string) error {
	image, err := nodeops.BackingFile(device)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it was detached while no process held it, and is not used again before the pods of its volume on this node are deleted")
	}
	if err != nil {
		return err
	}
	id, err := backend.ParseID(filepath.Base(filepath.Dir(image)))
	if err != nil {
		return nil //nolint:nilerr // another driver's
	}
	v, err := d.Backend.Get(ctx, id)
	switch {
	case err == nil && (v.Mode != backend.Block || !nodeops.IsAttached(device, v.Access.Image)):
		return nil // another driver's, or what it claims to be it is not
	case err == nil:
		return d.holds.hold(id, device, v.Access.Image)
	case backend.IsAbsent(err):
		return nil
	}
	return d.holds.hold(id, device, image)
}
