package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// populatesContext is that of the PersistentVolume by which a pod brings the content.
const populatesContext = "holdfast.dev/populates"

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
	share, shared, err := parseContext(id, req.GetVolumeContext())
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, n.do(ctx, id, "stage", func(ctx context.Context) error {
		if shared {
			return n.stageShared(ctx, id, share, access, req.GetStagingTargetPath())
		}
		v, err := n.lookUp(ctx, id, access)
		if err != nil {
			return err
		}
		if err := n.mayUse(ctx, v, req.GetVolumeContext()); err != nil {
			return err
		}
		if share, is := sharedAccess(v); is {
			return n.stageShared(ctx, id, share, access, req.GetStagingTargetPath())
		}
		return explain(v, n.stage(ctx, v, access, req.GetStagingTargetPath()))
	})
}

// mayUse refuses an image that another node has, a volume without all of its content, and to copy into one that has it, also where
// a pod has it staged already: for a Ceph pool its agent says that in the object.
func (n *node) mayUse(ctx context.Context, v *backend.Volume, volumeContext map[string]string) error {
	inCeph := v.Access.RBD != nil || v.Access.CephFS != nil
	switch {
	case v.Access.RBD != nil && v.AttachedTo != "" && v.AttachedTo != n.NodeID:
		return fmt.Errorf("%w: volume %s is attached to node %s, and an image is used by one node at a time: it can be used on node %s once it is attached to that",
			backend.ErrPrecondition, v.ID, v.AttachedTo, n.NodeID)
	case volumeContext[populatesContext] != "" && !v.Incomplete && !inCeph:
		return fmt.Errorf("%w: volume %s is stored with all of its content, so nothing is copied into it", backend.ErrPrecondition, v.ID)
	case v.Incomplete && n.CheckComplete != nil:
		return n.CheckComplete(ctx, v.ID)
	}
	return nil
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
		return n.stageBlock(ctx, p, a, staging)
	}
	m, err := p.at(staging)
	switch {
	case err != nil:
		return err
	case m == nil:
		return n.mount(ctx, v, a, staging)
	case m.ReadOnly != a.readOnly():
		return otherwise("staged", v.ID, m, a.readOnly())
	}
	return n.growToSize(ctx, v, a, staging, nil) // the attempt before may have been cut short
}

// otherwise refuses a repeat that asks for something else than what is there.
func otherwise(done string, id backend.ID, m *nodeops.Mount, readOnly bool) error {
	words := map[bool]string{true: "read-only", false: "writable"}
	return fmt.Errorf("%w: volume %s is %s at %s %s, requested is %s; remove it there first",
		backend.ErrExists, id, done, m.Target, words[m.ReadOnly], words[readOnly])
}

// mount puts a volume of mode Filesystem at target, completely or not at all.
func (n *node) mount(ctx context.Context, v *backend.Volume, a access, target string) error {
	if err := checkDirectory(target); err != nil {
		return err
	}
	small, err := n.attach(ctx, v, a, target)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.StageMounted)
	if err := n.growToSize(ctx, v, a, target, small); err != nil {
		err = errors.Join(err, nodeops.Unmount(ctx, target))
		return errors.Join(err, n.releaseUnused(ctx, v))
	}
	return nil
}

// attach mounts a volume. small says why it could not be grown before.
func (n *node) attach(ctx context.Context, v *backend.Volume, a access, target string) (small, err error) {
	if v.Access.Directory != "" {
		return nil, bindDirectory(ctx, v, a, target)
	}
	if v.Access.RBD != nil {
		return n.attachImage(ctx, v, a, target)
	}
	loop, err := nodeops.AttachLoop(ctx, v.Access.Image, nodeops.LoopOptions{Autoclear: true})
	if err != nil {
		return nil, err
	}
	// From the mount on the device lives as long as the mount does; without one it ends here.
	defer loop.Close()
	return n.mountDevice(ctx, v, a, loop.Path, target)
}

// mountDevice mounts what is on the device of a volume.
func (n *node) mountDevice(ctx context.Context, v *backend.Volume, a access, device, target string) (small, err error) {
	crashpoint.Here(crashpoint.StageAttached)
	if !a.readOnly() {
		if small, err = n.prepare(ctx, v, device); err != nil {
			return nil, err
		}
	}
	options := slices.Clone(a.flags)
	if a.readOnly() && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if err := nodeops.MountFS(ctx, device, target, v.FSType, options); err != nil {
		return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, v.ID, err)
	}
	return small, nil
}

// prepare mends and grows what is to be mounted for writing, as far as that needs to be done before. For readers it stays
// as it is, but for what the kernel replays of its log.
func (n *node) prepare(ctx context.Context, v *backend.Volume, device string) (small, err error) {
	err = nodeops.Preen(ctx, device, v.FSType)
	switch {
	case errors.Is(err, nodeops.ErrDamaged):
		n.observe(v, backend.FileSystemErrors, err.Error())
		return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, v.ID, err)
	case err != nil:
		return nil, fmt.Errorf("volume %s: %w", v.ID, err)
	case v.FSSize == v.Size:
		return nil, nil
	}
	return nodeops.GrowUnmounted(ctx, device, v.FSType), ctx.Err()
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

// growToSize grows a mounted volume to its full size. A volume that cannot grow is used at its present size, since its
// data must stay accessible: its condition reports that, with the error of growing it before the mount, and the next
// stage or NodeExpandVolume tries again.
func (n *node) growToSize(ctx context.Context, v *backend.Volume, a access, target string, small error) error {
	if a.readOnly() {
		return nil
	}
	m, err := mountOf(v, target)
	if err != nil {
		return err
	}
	if err := n.grow(ctx, v, m); err != nil && ctx.Err() == nil {
		n.stayedSmall(v, cmp.Or(small, err))
	}
	return ctx.Err()
}

func (n *node) stayedSmall(v *backend.Volume, err error) {
	n.Log.Error("a volume cannot grow and is used at its present size", "volume", v.ID, "size", v.Size, "error", err)
	n.observe(v, backend.NotGrown, fmt.Sprintf("it has %d bytes, but its file system has not grown to them, which is retried when it is staged the next time, once the last pod with it on this node has ended: %v", v.Size, err))
}

// observe reports to the backend what was found wrong with a volume.
func (n *node) observe(v *backend.Volume, reason backend.HealthReason, message string) {
	if b, ok := n.Backend.(backend.HealthObserver); ok {
		b.ObserveHealth(v.ID, backend.Condition{Abnormal: true, Reason: reason, Message: message})
	}
}

// giveToGroup gives a mounted volume to the group of the pod that is to write to it. That is done for each pod: the
// kubelet need not stage a volume again for the next one, which may be of another group.
func giveToGroup(ctx context.Context, a access, path string, readOnly bool) error {
	if readOnly || a.group == noGroup {
		return nil
	}
	return nodeops.SetGroup(ctx, path, a.group)
}
