package driver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

func (n *node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, ephemeral, err := parseHandle(req.GetVolumeId())
	access, unusable := parseCapability(req.GetVolumeCapability())
	if err := cmp.Or(err, parsePath("target_path", req.GetTargetPath()), unusable); err != nil {
		return nil, err
	}
	if ephemeral != isEphemeral(req.GetVolumeContext()) {
		return nil, fmt.Errorf("%w volume_id %s: an inline ephemeral volume, and nothing else, has an id of csi- and 64 hexadecimal digits and %s=true in its context",
			backend.ErrInvalid, backend.Quote(req.GetVolumeId()), ephemeralKey)
	}
	if ephemeral {
		return &csi.NodePublishVolumeResponse{}, n.publishEphemeral(ctx, id, access, req)
	}
	return &csi.NodePublishVolumeResponse{}, n.publishStaged(ctx, id, access, req)
}

func (n *node) publishStaged(ctx context.Context, id backend.ID, a access, req *csi.NodePublishVolumeRequest) error {
	if req.GetStagingTargetPath() == "" {
		return fmt.Errorf("%w: staging_target_path is missing", backend.ErrPrecondition)
	}
	if err := parsePath("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return err
	}
	shared, err := parseContext(id, req.GetVolumeContext())
	if err != nil {
		return err
	}
	return n.do(ctx, id, "publish", func(ctx context.Context) error {
		v, err := n.lookUp(ctx, id, shared, a)
		if err != nil {
			return err
		}
		if req.GetVolumeContext()[populatesContext] != "" || v.Incomplete { // the volume may have its content since it was staged
			if err := n.mayUse(ctx, v, req.GetVolumeContext()); err != nil {
				return err
			}
		}
		return explain(v, n.publish(ctx, v, a, req))
	})
}

// publish binds what is staged to the target.
func (n *node) publish(ctx context.Context, v *backend.Volume, a access, req *csi.NodePublishVolumeRequest) error {
	staging, err := resolve(req.GetStagingTargetPath())
	if err != nil {
		return err
	}
	target, err := resolve(req.GetTargetPath())
	if err != nil {
		return err
	}
	if err := n.renewStaged(ctx, v, a, staging, req.GetVolumeContext()); err != nil {
		return err
	}
	p, err := n.stateOf(v)
	if err != nil {
		return err
	}
	staged, err := p.at(p.place(staging))
	if err == nil {
		err = p.verify(staged, staging)
	}
	if err != nil {
		return err
	}
	readOnly := req.GetReadonly() || a.readOnly()
	if staged.ReadOnly && !readOnly {
		return fmt.Errorf("%w: volume %s is mounted read-only at %s, for another pod or since its file system had an error (see the kernel's log): delete all pods that use it on this node", backend.ErrPrecondition, v.ID, staged.Target)
	}
	m, err := p.at(target)
	switch {
	case err != nil:
		return err
	case m == nil:
		err = bind(ctx, p, a, staged, target, readOnly)
	case m.ReadOnly != readOnly:
		err = otherwise(v.ID, m, readOnly)
	}
	if err != nil {
		return err
	}
	return protect(p)
}

func bind(ctx context.Context, p *mountState, a access, staged *nodeops.Mount, target string, readOnly bool) error {
	if slices.Contains(singleNode, a.writer) && a.writer != multiWriter {
		if err := checkAlone(p, a, staged.Target, target); err != nil {
			return err
		}
	}
	if err := giveToGroup(ctx, p, a, staged, readOnly); err != nil {
		return err
	}
	undo, err := makeTarget(target, p.v.Mode)
	if err != nil {
		return err
	}
	if err := p.bind(ctx, staged, target, readOnly, a.bindFlags()); err != nil {
		undo()
		return err
	}
	crashpoint.Here(crashpoint.PublishBound)
	return nil
}

// giveToGroup gives a mounted volume to the group of the pod that is to write to it. That is done for each pod: the
// kubelet need not stage a volume again for the next one, which may be of another group.
func giveToGroup(ctx context.Context, p *mountState, a access, m *nodeops.Mount, readOnly bool) error {
	if readOnly || a.group == noGroup {
		return nil
	}
	return p.setGroup(ctx, m, a.group)
}

// checkAlone refuses a second target where the access mode allows one only.
func checkAlone(p *mountState, a access, source, target string) error {
	m, err := otherMount(p, source, target)
	if err == nil && m != nil {
		err = fmt.Errorf("%w: volume %s is mounted at %s, and access mode %s allows one pod at a time", backend.ErrPrecondition, p.id, m.Target, a.writer)
	}
	return err
}

// otherMount returns a mount of the volume at another place than these, nil if there is none.
func otherMount(p *mountState, places ...string) (*nodeops.Mount, error) {
	mounts, err := p.mounts()
	if err != nil {
		return nil, err
	}
	for i, m := range mounts {
		if !slices.ContainsFunc(places, func(place string) bool { return samePlace(m.Target, place) }) {
			return &mounts[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as said
}

// samePlace says whether two mounts are copies of each other, seen twice because a directory above is bound elsewhere.
func samePlace(a, b string) bool {
	if a == b || filepath.Base(a) != filepath.Base(b) {
		return a == b
	}
	dirA, errA := os.Stat(filepath.Dir(a))
	dirB, errB := os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(dirA, dirB)
}
