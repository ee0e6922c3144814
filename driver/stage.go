package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// deviceFile is the file in the staging directory of a block volume onto which its device is bound. The bind is the
// record that the device belongs to the volume, even when the image is gone.
const deviceFile = "holdfast-device"

func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := parsePath("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	access, err := parseCapability(req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	err = n.do(ctx, id, "stage", func(ctx context.Context) error {
		v, err := n.lookUp(ctx, id, access)
		if err != nil {
			return err
		}
		return explain(v, n.stage(ctx, v, access, req.GetStagingTargetPath()))
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// lookUp returns a volume that can be used as asked.
func (n *node) lookUp(ctx context.Context, id backend.ID, a access) (*backend.Volume, error) {
	v, err := n.Backend.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := accessible(v); err != nil {
		return nil, err
	}
	if err := a.fits(v); err != nil {
		return nil, err
	}
	return v, nil
}

func (n *node) stage(ctx context.Context, v *backend.Volume, a access, path string) error {
	staging, err := resolve(path)
	if err != nil {
		return err
	}
	p, err := look(v)
	if err != nil {
		return err
	}
	if a.mode == backend.Block {
		return stageBlock(ctx, p, a, staging)
	}
	m, err := p.at(staging)
	switch {
	case err != nil:
		return err
	case m == nil:
		return mount(ctx, v, a, staging)
	case m.ReadOnly != a.readOnly():
		return otherwise("staged", v.ID, m, a.readOnly())
	}
	return settle(ctx, v, a, staging) // the attempt before may have been cut short
}

// otherwise refuses a repeat that asks for something else than what is there.
func otherwise(done string, id backend.ID, m *nodeops.Mount, readOnly bool) error {
	words := map[bool]string{true: "read-only", false: "writable"}
	return fmt.Errorf("%w: volume %s is %s at %s %s, asked for %s; take it away there first",
		backend.ErrExists, id, done, m.Target, words[m.ReadOnly], words[readOnly])
}

// mount puts a volume of mode Filesystem at target, completely or not at all.
func mount(ctx context.Context, v *backend.Volume, a access, target string) error {
	if err := checkDirectory(target); err != nil {
		return err
	}
	if err := attach(ctx, v, a, target); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.StageMounted)
	if err := settle(ctx, v, a, target); err != nil {
		return errors.Join(err, nodeops.Unmount(ctx, target))
	}
	return nil
}

func attach(ctx context.Context, v *backend.Volume, a access, target string) error {
	if v.Access.Directory != "" {
		return bindDirectory(ctx, v, a, target)
	}
	loop, err := nodeops.AttachLoop(ctx, v.Access.Image, nodeops.LoopOptions{Autoclear: true})
	if err != nil {
		return err
	}
	// From the mount on the device lives as long as the mount does; without one it ends here.
	defer loop.Close()
	crashpoint.Here(crashpoint.StageAttached)
	options := slices.Clone(a.flags)
	if a.readOnly() && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if err := nodeops.MountFS(ctx, loop.Path, target, v.FSType, options); err != nil {
		return fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, v.ID, err)
	}
	return nil
}

func bindDirectory(ctx context.Context, v *backend.Volume, a access, target string) error {
	for _, flag := range a.flags {
		if !slices.Contains(mountFlags, flag) && flag != "ro" && flag != "rw" {
			name, _, _ := strings.Cut(flag, "=")
			return fmt.Errorf("%w: volume %s is a directory, to which mount flag %s cannot apply; these can: ro, rw, %s",
				backend.ErrInvalid, v.ID, backend.Quote(name), strings.Join(mountFlags, ", "))
		}
	}
	return nodeops.Bind(ctx, v.Access.Directory, target, a.readOnly(), a.bindFlags())
}

// settle brings a mounted volume to its full size and gives it to the group that asked for it.
func settle(ctx context.Context, v *backend.Volume, a access, target string) error {
	if a.readOnly() {
		return nil
	}
	m, err := mountOf(v, target)
	if err != nil {
		return err
	}
	if err := grow(ctx, v, m); err != nil {
		return err
	}
	if a.group == noGroup {
		return nil
	}
	return nodeops.SetGroup(ctx, target, a.group)
}

// stageBlock attaches the image without autoclear, since a device node in use keeps nothing open.
func stageBlock(ctx context.Context, p *presence, a access, staging string) error {
	if err := checkDirectory(staging); err != nil {
		return err
	}
	file := filepath.Join(staging, deviceFile)
	m, err := p.at(file)
	switch {
	case err != nil:
		return err
	case m != nil && m.ReadOnly != a.readOnly():
		return otherwise("staged", p.id, m, a.readOnly())
	case m != nil:
		return nodeops.GrowLoop(loopNode(m))
	}
	undo, err := makeTarget(file, backend.Block)
	if err != nil {
		return err
	}
	loop, err := nodeops.AttachLoop(ctx, p.v.Access.Image, nodeops.LoopOptions{ReadOnly: a.readOnly()})
	if err != nil {
		undo()
		return err
	}
	defer loop.Close()
	crashpoint.Here(crashpoint.StageAttached)
	if err := nodeops.Bind(ctx, loop.Path, file, a.readOnly(), nil); err != nil {
		undo()
		return errors.Join(err, release(ctx, []string{loop.Path}))
	}
	return nil
}

func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := parsePath("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	err = n.do(ctx, id, "unstage", func(ctx context.Context) error {
		return unstage(ctx, n.find(ctx, id), req.GetStagingTargetPath())
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// unstage works by what is mounted, not by what the volume is known to be.
func unstage(ctx context.Context, p *presence, path string) error {
	devices := p.blockDevices()
	staging, err := resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return release(ctx, devices)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(staging, deviceFile)
	device, err := p.unmount(ctx, file)
	if err != nil {
		return err
	}
	if device != "" && !slices.Contains(devices, device) {
		devices = append(devices, device)
	}
	if _, err := p.unmount(ctx, staging); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnstageMount)
	if device != "" || p.v != nil && p.v.Mode == backend.Block {
		if err := removeTarget(file); err != nil {
			return err
		}
	}
	if err := release(ctx, devices); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnstageDone)
	return nil
}

// unmount undoes the volume's mount at path and returns the device whose node was bound there, if one was.
func (p *presence) unmount(ctx context.Context, path string) (device string, err error) {
	m, err := p.at(path)
	if err != nil || m == nil {
		return "", err
	}
	device = loopNode(m)
	return device, nodeops.Unmount(ctx, path)
}

// blockDevices are the devices of a block volume: those of a file system end by themselves with its last mount.
func (p *presence) blockDevices() []string {
	if p.v == nil || p.v.Mode != backend.Block {
		return nil
	}
	return p.loops
}
