package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// stageShared mounts a shared volume. A server that does not answer is waited for a while, and in the kernel as long as
// it takes: a repeated call continues to wait there, and a mount that is not requested again is never completed.
func (n *node) stageShared(ctx context.Context, id backend.ID, s share, a access, path string) error {
	if err := a.suits(backend.ManyHosts); err != nil {
		return err
	}
	if err := s.check(a.flags); err != nil {
		return fmt.Errorf("%w volume_capability: %w", backend.ErrInvalid, err)
	}
	staging, err := resolve(path)
	if err != nil {
		return err
	}
	m, err := (&mountState{id: id, shared: true}).at(staging)
	switch {
	case err != nil:
		return err
	case m == nil:
		return n.mountShared(ctx, id, s, a, staging)
	case !s.shownBy(m):
		return fmt.Errorf("%w: volume %s is staged at %s from %s, requested is %s; unstage it first", backend.ErrPrecondition, id, staging, m.Source, s)
	case m.ReadOnly != a.readOnly():
		return otherwise("staged", id, m, a.readOnly())
	case s.cephfs != nil: // the process that mounted it may have been killed before it reported the client
		return n.reportCephFSClient(ctx, id, staging)
	}
	return nil
}

func (n *node) mountShared(ctx context.Context, id backend.ID, s share, a access, staging string) error {
	if err := checkDirectory(staging); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	options := slices.Clone(a.flags)
	if a.readOnly() && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if s.cephfs != nil {
		return n.mountCephFS(ctx, id, s.cephfs, options, staging)
	}
	return n.mountNFS(ctx, id, s, options, staging)
}

func (n *node) mountNFS(ctx context.Context, id backend.ID, s share, options []string, staging string) error {
	address, err := s.address(ctx)
	if err != nil {
		return fmt.Errorf("volume %s: %w", id, err)
	}
	nfs := nodeops.NFS{Server: s.server, Address: address, Port: s.port, Path: s.path, Options: options, Namespaces: n.Namespaces}
	err = nodeops.MountNFS(ctx, nfs, staging)
	if lack, is := errors.AsType[*nodeops.NFSClientError](err); is {
		return fmt.Errorf("%w: volume %s: node %s cannot mount shared volumes: %w", backend.ErrPrecondition, id, n.NodeID, lack)
	}
	if err != nil {
		return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, id, err)
	}
	crashpoint.Here(crashpoint.StageMounted)
	return nil
}

// publishShared binds what is staged to the target. Nothing of it waits for the server longer than the others do.
func (n *node) publishShared(ctx context.Context, id backend.ID, s share, a access, req *csi.NodePublishVolumeRequest) error {
	if err := a.suits(backend.ManyHosts); err != nil {
		return err
	}
	staging, err := resolve(req.GetStagingTargetPath())
	if err != nil {
		return err
	}
	target, err := resolve(req.GetTargetPath())
	if err != nil {
		return err
	}
	p := &mountState{id: id, shared: true}
	staged, err := p.at(staging)
	readOnly := req.GetReadonly() || a.readOnly()
	switch {
	case err != nil:
		return err
	case staged == nil || !s.shownBy(staged):
		return fmt.Errorf("%w: volume %s is not staged at %s from %s; stage it first", backend.ErrPrecondition, id, staging, s)
	case staged.ReadOnly && !readOnly:
		return fmt.Errorf("%w: volume %s is read-only where it is staged (%s); unstage it first", backend.ErrPrecondition, id, staging)
	}
	m, err := p.at(target)
	switch {
	case err != nil:
		return err
	case m == nil:
		return n.bindShared(ctx, p, a, staged, target, readOnly)
	case m.ReadOnly != readOnly:
		return otherwise("published", id, m, readOnly)
	}
	return nil
}

func (n *node) bindShared(ctx context.Context, p *mountState, a access, staged *nodeops.Mount, target string, readOnly bool) error {
	if slices.Contains(singleNode, a.writer) && a.writer != multiWriter {
		if err := checkAlone(p, a, staged.Target, target); err != nil {
			return err
		}
	}
	n.giveShared(ctx, p.id, a, staged, readOnly)
	undo, err := makeTarget(target, backend.Filesystem)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	if err := nodeops.BindShared(ctx, staged.Target, target, readOnly, a.bindFlags()); err != nil {
		undo()
		return fmt.Errorf("%w: volume %s: %w", backend.ErrUnavailable, p.id, err)
	}
	crashpoint.Here(crashpoint.PublishBound)
	return nil
}

// giveShared gives the top directory of a shared volume to the group of the pod, so that the pod can write there; the
// server gives what is made in it to the same group. A tree is never walked over the network, and what was in it keeps its
// groups. A server that squashes root refuses: there the volume's own group and mode count.
func (n *node) giveShared(ctx context.Context, id backend.ID, a access, staged *nodeops.Mount, readOnly bool) {
	if readOnly || a.group == noGroup {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	if err := nodeops.SetTopGroup(ctx, staged, a.group); err != nil {
		n.Log.Warn("the group of a pod was not set on a shared volume", "volume", id, "group", a.group, "error", err)
	}
}

// unpublishShared takes the target away, also when the server is dead.
func (n *node) unpublishShared(ctx context.Context, m *nodeops.Mount) error {
	if err := nodeops.UnmountShared(ctx, m.Target, n.Patience, n.GiveUpAfter); err != nil {
		return err
	}
	if err := removeTarget(m.Target); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.UnpublishDone)
	return nil
}
