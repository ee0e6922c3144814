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

// mountNode binds the node of a device of the volume to a file.
func (h hostFS) mountNode(ctx context.Context, a access, file string, attach func(ctx context.Context, readOnly bool) (string, error)) error {
	undo, err := makeTarget(file, backend.Block)
	if err != nil {
		return err
	}
	device, err := attach(ctx, a.readOnly())
	if err != nil {
		undo()
		return err
	}
	crashpoint.Here(crashpoint.StageAttached)
	err = h.keep(device)
	if err == nil {
		err = nodeops.Bind(ctx, device, file, a.readOnly(), nil)
	}
	if err == nil {
		return nil
	}
	undo()
	p, lost := h.n.stateOf(h.v)
	if lost == nil {
		lost = h.n.release(ctx, p.id, p.devices)
	}
	return errors.Join(err, lost)
}

// keep makes sure that a device stays that of the volume while its node is seen. That of an image in a Ceph cluster does:
// only this program unmaps it, and not while its node is bound anywhere.
func (h hostFS) keep(device string) error {
	if h.v.Access.RBD != nil {
		return nil
	}
	return h.n.holds.hold(h.v.ID, device, h.v.Access.Image)
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
