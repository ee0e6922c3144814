package driver

import (
	"context"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// renewStaged makes sure that a volume in a Ceph cluster is staged through a client that is recorded and not shut out. The kubelet
// stages a volume once for the pods that follow each other on its node. If the node was shut out between two of them, it would
// publish a dead mount, which also keeps the node from being let in again. So the mount is removed if no pod has it, and the volume
// is staged when the node was let in: then the kernel has no client from before.
func (n *node) renewStaged(ctx context.Context, v *backend.Volume, a access, staging string, volumeContext map[string]string) error {
	if v.Access.RBD == nil && v.Access.CephFS == nil {
		return nil
	}
	p, err := n.stateOf(v)
	if err != nil {
		return err
	}
	m, err := p.at(p.place(staging))
	if err != nil {
		return err
	}
	dead, refused := n.cephShutOut(ctx)
	switch {
	case refused != nil && dead && m != nil:
		if err := n.unstageDead(ctx, p, m, staging); err != nil {
			refused = fmt.Errorf("%w; %v", refused, err)
		}
		return fmt.Errorf("volume %s: %w", v.ID, refused)
	case refused != nil:
		return fmt.Errorf("volume %s: %w", v.ID, refused)
	case m == nil:
		if err := n.mayUse(ctx, v, volumeContext); err != nil {
			return err
		}
		return n.stage(ctx, v, a, staging)
	}
	return p.record(ctx, m)
}

func (n *node) cephShutOut(ctx context.Context) (dead bool, err error) {
	if n.CephShutOut == nil {
		return false, nil
	}
	return n.CephShutOut(ctx)
}

// unstageDead leaves alone what a pod has.
func (n *node) unstageDead(ctx context.Context, p *mountState, staged *nodeops.Mount, staging string) error {
	other, err := otherMount(p, staged.Target)
	switch {
	case err != nil:
		return err
	case other != nil:
		return fmt.Errorf("volume %s neither reads nor writes any more at %s: delete the pod that has it",
			p.id, other.Target)
	}
	n.Log.Warn("unstaging a volume whose client was shut out of its Ceph cluster; it is staged again for the next pod",
		"volume", p.id, "path", staging)
	if err := n.unstage(ctx, p, staging); err != nil {
		return err
	}
	if n.Released != nil {
		n.Released(p.id)
	}
	return nil
}
