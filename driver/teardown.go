package driver

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

func (n *node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, ephemeral, err := parseHandle(req.GetVolumeId())
	if err := cmp.Or(err, parsePath("target_path", req.GetTargetPath())); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, n.do(ctx, id, "unpublish", func(ctx context.Context) error {
		if err := n.unpublish(ctx, n.find(ctx, id, req.GetTargetPath()), req.GetTargetPath()); err != nil {
			return err
		}
		if ephemeral {
			return n.removeEphemeral(ctx, id)
		}
		return nil
	})
}

// unpublish works by what is mounted, not by what the volume is known to be.
func (n *node) unpublish(ctx context.Context, p *mountState, path string) error {
	target, err := resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	bound, err := n.unmount(ctx, p, target)
	if err != nil {
		return err
	}
	if err := removeTarget(target); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnpublishDone)
	if p.v != nil && p.v.Access.RBD != nil {
		if Ephemeral(p.v) { // is never unstaged
			return n.release(ctx, p.id, p.devices)
		}
		return protect(p)
	}
	if len(bound) == 0 {
		return nil
	}
	// Where the volume was unstaged before, this was the last use.
	return errors.Join(protect(p), n.release(ctx, p.id, bound))
}

func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err := cmp.Or(err, parsePath("staging_target_path", req.GetStagingTargetPath())); err != nil {
		return nil, err
	}
	err = n.do(ctx, id, "unstage", func(ctx context.Context) error {
		return n.unstage(ctx, n.find(ctx, id, req.GetStagingTargetPath()), req.GetStagingTargetPath())
	})
	if err != nil {
		return nil, err
	}
	if n.Released != nil {
		n.Released(id)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// unstage works by what is mounted, not by what the volume is known to be.
func (n *node) unstage(ctx context.Context, p *mountState, path string) error {
	staging, err := resolve(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	file := filepath.Join(staging, deviceFile)
	devices := uses{}
	maps.Copy(devices, p.devices)
	if p.v == nil {
		if devices, err = p.images(staging, file); err != nil {
			return err
		}
	}
	n.holds.of(p.id, devices)
	if missing {
		return n.release(ctx, p.id, devices)
	}
	isBlock := p.v == nil || p.v.Mode != backend.Filesystem // also where its metadata is lost
	if isBlock {
		bound, err := n.unmount(ctx, p, file)
		if err != nil && !errors.Is(err, unix.EIO) { // a file system that has failed is staged there, and no device
			return err
		}
		maps.Copy(devices, bound)
	}
	if _, err := n.unmount(ctx, p, staging); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnstageMount)
	if isBlock && (p.v != nil || len(devices) > 0) {
		if err := removeTarget(file); err != nil {
			return err
		}
	}
	if err := n.release(ctx, p.id, devices); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnstageDone)
	return nil
}

// find is stateOf for taking a volume off this host, which must be possible whatever became of the volume, and while the disk of
// any pool hangs. path is where it is taken off.
func (n *node) find(ctx context.Context, id backend.ID, path string) *mountState {
	if p, _ := n.ofServer(id, path); p != nil {
		return p
	}
	p, err := within(ctx, n, &n.found, id, true, func(ctx context.Context) (*mountState, error) {
		v, err := n.Backend.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return n.stateOf(v)
	})
	if err == nil {
		p.byName = true
		return p
	}
	n.Log.Warn("taking down a volume that cannot be looked up", "volume", id, "error", err)
	return &mountState{id: id, byName: true, gone: backend.IsAbsent(err)}
}

// unmount undoes the volume's mount at path and returns the loop device whose node was bound there, if one was.
func (n *node) unmount(ctx context.Context, p *mountState, path string) (bound uses, err error) {
	m, err := nodeops.MountAt(path)
	if err != nil || m == nil {
		return nil, err
	}
	if nodeops.IsOrphan(m) { // which volume's it was cannot be said any more, and it is no other's by its path
		return nil, nodeops.Unmount(ctx, path)
	}
	if device := nodeops.LoopNode(m); device != "" && (p.v == nil || p.v.Mode == backend.Block) {
		file, err := nodeops.LoopFile(device)
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return nil, err
		}
		if !p.shows(m) { // it was detached by a process that has its node, and is now free, or another program's
			file = nodeops.File{}
		}
		return uses{device: {file: file}}, nodeops.Unmount(ctx, path)
	}
	if m, err = p.own(m, path); err != nil {
		return nil, err
	}
	if isOfServer(m, p.id) || nodeops.IsRBD(nodeops.AttachedUnder(m)) { // its server or cluster may be dead
		return nil, nodeops.UnmountShared(ctx, path, n.Patience, n.GiveUpAfter)
	}
	return nil, nodeops.Unmount(ctx, path)
}
