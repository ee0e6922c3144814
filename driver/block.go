package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// deviceFile is the file in the staging directory of a block volume onto which its device is bound. The bind is the
// record that the device belongs to the volume, even when the image is gone.
const deviceFile = "holdfast-device"

// stageBlock attaches the image without autoclear, since a device node in use keeps nothing open.
func (n *node) stageBlock(ctx context.Context, p *mountState, a access, staging string) error {
	if err := checkDirectory(staging); err != nil {
		return err
	}
	file := filepath.Join(staging, deviceFile)
	if m, err := nodeops.MountAt(file); err == nil && m != nil && nodeops.IsOrphan(m) { // of a device that another program has unmapped
		if err := nodeops.Unmount(ctx, file); err != nil {
			return err
		}
	}
	m, err := p.at(file)
	switch {
	case err != nil:
		return err
	case m != nil && m.ReadOnly != a.readOnly():
		return otherwise("staged", p.id, m, a.readOnly())
	case m != nil:
		if err := n.keep(p.v, nodeops.AttachedNode(m)); err != nil {
			return err
		}
		if err := nodeops.GrowAttached(ctx, nodeops.AttachedNode(m), n.Patience); err != nil {
			n.stayedSmall(p.v, err)
		}
		return nil
	}
	undo, err := makeTarget(file, backend.Block)
	if err != nil {
		return err
	}
	device, err := n.attachBlock(ctx, p.v, a.readOnly())
	if err != nil {
		undo()
		return err
	}
	crashpoint.Here(crashpoint.StageAttached)
	err = n.keep(p.v, device)
	if err == nil {
		err = nodeops.Bind(ctx, device, file, a.readOnly(), nil)
	}
	if err != nil {
		undo()
		return errors.Join(err, n.releaseUnused(ctx, p.v))
	}
	return nil
}

// keep makes sure that a device stays that of the volume while its node is seen. That of an image in a Ceph cluster does:
// only this program unmaps it, and not while its node is bound anywhere.
func (n *node) keep(v *backend.Volume, device string) error {
	if v.Access.RBD != nil {
		return nil
	}
	return n.holds.hold(v.ID, device, v.Access.Image)
}

// releaseUnused detaches those of a volume's devices that nothing uses.
func (n *node) releaseUnused(ctx context.Context, v *backend.Volume) error {
	p, err := look(v)
	if err != nil {
		return err
	}
	return n.release(ctx, v.ID, p.devices)
}

func (n *node) attachBlock(ctx context.Context, v *backend.Volume, readOnly bool) (device string, err error) {
	if v.Access.RBD == nil {
		return attachLoop(ctx, v.Access.Image, readOnly)
	}
	d, err := n.mapImage(ctx, v, readOnly)
	if err != nil {
		return "", err
	}
	return d.Path, nil
}

// attachLoop attaches a device that readers may only read. It is not attached read-only, if the image can be written
// at all: a process that has the node of such a device may change the file that it shows (LOOP_CHANGE_FD).
func attachLoop(ctx context.Context, image string, readOnly bool) (device string, err error) {
	loop, err := nodeops.AttachLoop(ctx, image, nodeops.LoopOptions{})
	if err != nil && readOnly {
		loop, err = nodeops.AttachLoop(ctx, image, nodeops.LoopOptions{ReadOnly: true})
	}
	if err != nil {
		return "", err
	}
	if readOnly {
		err = setReadOnly(loop.Path, true)
	}
	return loop.Path, errors.Join(err, loop.Close())
}

// protect makes the device of a block volume read-only while all its targets are: a read-only bind alone keeps no
// one from writing to a device.
func protect(p *mountState) error {
	if p.v == nil || p.v.Mode != backend.Block {
		return nil
	}
	mounts, err := p.mounts()
	if err != nil {
		return err
	}
	staged := func(m nodeops.Mount) bool { return filepath.Base(m.Target) == deviceFile }
	if slices.ContainsFunc(mounts, func(m nodeops.Mount) bool { return staged(m) && m.ReadOnly }) {
		return nil // for readers only, from the beginning to the end
	}
	targets := slices.DeleteFunc(mounts, staged)
	writable := func(m nodeops.Mount) bool { return !m.ReadOnly }
	readOnly := len(targets) > 0 && !slices.ContainsFunc(targets, writable)
	for device := range p.devices {
		if err := setReadOnly(device, readOnly); err != nil {
			return err
		}
	}
	return nil
}

// setReadOnly makes a block device refuse or accept writes.
func setReadOnly(device string, readOnly bool) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	flag := 0
	if readOnly {
		flag = 1
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, flag); err != nil {
		return fmt.Errorf("making %s read-only %t: %w", device, readOnly, err)
	}
	return nil
}
